//! Programs in C that are written for RMR: two processes, a table in a file, and the header of this crate.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where Cargo has put the library for this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let deps = here.parent().unwrap();
    let found = [deps, deps.parent().unwrap()].into_iter().find(|folder| folder.join("librmr_si.so").exists());
    found.expect("cargo builds the library before its tests").to_owned()
}

fn compiler() -> Option<&'static str> {
    ["cc", "gcc", "clang"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

fn compiled(compiler: &str, source: &str, folder: &Path) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(source).with_extension("");
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-std=c99", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(crate_folder.join("tests").join(source))
        .arg("-I")
        .arg(crate_folder.join("include"))
        .arg("-L")
        .arg(library())
        .args(["-lrmr_si", "-lpthread"])
        .status()
        .unwrap();
    assert!(status.success(), "{source} does not compile");
    program
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn started(program: &Path, role: &str, port: u16, other: u16, table: &Path) -> Child {
    Command::new(program)
        .args([role, &port.to_string(), &format!("127.0.0.1:{other}")])
        .env("LD_LIBRARY_PATH", library())
        .env("RMR_SEED_RT", table)
        .env("RMR_RTG_SVC", "-1")
        .env("RMR_BIND_IF", "127.0.0.1")
        .env("RMR_SRC_ID", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn folder_for(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nearcall-rmr-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn two_programs_exchange_messages() {
    let Some(compiler) = compiler() else {
        println!("skipped: there is no C compiler");
        return;
    };
    let folder = folder_for("two");
    let program = compiled(compiler, "program.c", &folder);
    let (asker, answerer) = (free_port(), free_port());
    let table = folder.join("table.rt");
    std::fs::write(
        &table,
        format!(
            "newrt | start | seed\nmse | 1000 | -1 | 127.0.0.1:{answerer}\nmse | 1001 | 7 | 127.0.0.1:{answerer}\n\
             newrt | end | 2\n"
        ),
    )
    .unwrap();
    let mut answering = started(&program, "answer", answerer, asker, &table);
    let asking = started(&program, "ask", asker, answerer, &table).wait_with_output().unwrap();
    let answering = {
        if !asking.status.success() {
            let _ = answering.kill();
        }
        answering.wait_with_output().unwrap()
    };
    let said = |output: &std::process::Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    assert!(asking.status.success() && answering.status.success(), "{}{}", said(&asking), said(&answering));
    assert!(said(&asking).contains("all is well"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn nothing_is_borne_by_every_function() {
    let Some(compiler) = compiler() else {
        println!("skipped: there is no C compiler");
        return;
    };
    let folder = folder_for("null");
    let program = compiled(compiler, "nothing.c", &folder);
    let output = Command::new(&program).env("LD_LIBRARY_PATH", library()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}
