//! Tells the crate whether the compiler was given a profile, so that the module can say so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    println!("cargo:rustc-check-cfg=cfg(profiled)");
    if std::env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("profile-use")) {
        println!("cargo:rustc-cfg=profiled");
    }
}
