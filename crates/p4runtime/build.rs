//! Writes the messages and stubs of the protocol files in `proto`: with a compiler in Rust, so that
//! no `protoc` is looked for.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"], ["proto"])?;
    // Values of a few bytes come by the thousand: they are places in the message that they came with.
    // An entity is a pointer: what many empty ones take, before anything is checked, is little.
    tonic_prost_build::configure()
        .codec_path("crate::wire::Codec")
        .bytes(".p4.v1.FieldMatch")
        .bytes(".p4.v1.Action.Param")
        .boxed(".p4.v1.Entity.entity.table_entry")
        .boxed(".p4.v1.Entity.entity.direct_counter_entry")
        .compile_fds(files)?;
    Ok(())
}
