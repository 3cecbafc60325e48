//! Makes Rust of the descriptors that protoc has written to the file that `DESCRIPTORS` names.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=DESCRIPTORS");
    let file = std::env::var("DESCRIPTORS")?;
    println!("cargo::rerun-if-changed={file}");
    let set = prost_types::FileDescriptorSet::decode(std::fs::read(file)?.as_slice())?;
    Ok(tonic_prost_build::configure().compile_fds(set)?)
}
