//! Writes the messages and stubs of the protocol files in `proto`: with a compiler in Rust, so that
//! no `protoc` is looked for.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
