//! Generates the messages and stubs from the files in `proto`, with a compiler in Rust instead of
//! `protoc`.

/// Compiles the protocol definitions. Fails if one of them is not valid.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"], ["proto"])?;
    // Requests have thousands of small values: `Bytes` refer to the buffer of the message. Boxed
    // entities keep empty updates small until they are checked.
    tonic_prost_build::configure()
        .codec_path("crate::wire::MessageCodec")
        .bytes(".p4.v1.FieldMatch")
        .bytes(".p4.v1.Action.Param")
        .boxed(".p4.v1.Entity.entity.table_entry")
        .boxed(".p4.v1.Entity.entity.direct_counter_entry")
        .compile_fds(files)?;
    Ok(())
}
