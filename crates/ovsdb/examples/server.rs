//! Serves a database on a Unix socket: `server SOCKET LOG [SCHEMA]`.
//!
//! Without a schema file the example serves `Open_vSwitch`, so that `ovs-vsctl --no-wait
//! --db=unix:SOCKET` works. The process ends when its standard input ends.

use std::{error::Error, io, path::Path};

use shunt_ovsdb::{
    Server, ServerConfig,
    schema::{DatabaseSchema, open_vswitch},
};

/// Serves the database until standard input ends. Fails for a bad schema.
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (socket, log, schema) = match arguments.as_slice() {
        [socket, log] => (socket, log, open_vswitch()),
        [socket, log, schema] => {
            (socket, log, DatabaseSchema::from_text(&std::fs::read_to_string(schema)?)?)
        }
        _ => return Err("arguments: SOCKET LOG [SCHEMA]".into()),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let handle = runtime.block_on(async {
        let server = Server::open(schema, Some(Path::new(log)), ServerConfig::default())?;
        server.listen(Path::new(socket))?.start()
    })?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    runtime.block_on(handle.stop());
    Ok(())
}
