//! The stream of one controller: an arbitration update first, then any message.

use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{Code, Status, Streaming};

use super::{arbiter::StreamId, device::PacketError, state::ServiceState};
use crate::{
    error::RpcError,
    value,
    wire::p4::v1::{
        DigestListAck, DigestListAckError, PacketOut, PacketOutError, StreamError,
        StreamMessageRequest, StreamOtherError, stream_error::Details,
        stream_message_request::Update, stream_message_response::Update as Reply,
    },
};

/// Serves a stream until it ends.
///
/// Returns an error unless the controller closed the stream.
pub(super) async fn serve(
    state: &Arc<Mutex<ServiceState>>,
    stream: StreamId,
    mut requests: Streaming<StreamMessageRequest>,
) -> Result<(), Status> {
    let mut has_begun = false;
    let with_timeout = state.lock().settings.arbitration_timeout;
    let first = tokio::time::timeout(with_timeout, requests.message()).await;
    let mut next = first.map_err(|_| RpcError::Late)??;
    while let Some(request) = next {
        handle_message(state, stream, request, &mut has_begun)?;
        next = requests.message().await?;
    }
    Ok(())
}

/// Handles a message of a client.
fn handle_message(
    state: &Mutex<ServiceState>,
    stream: StreamId,
    request: StreamMessageRequest,
    has_begun: &mut bool,
) -> Result<(), RpcError> {
    let mut state = state.lock();
    match request.update {
        Some(Update::Arbitration(message)) => {
            state.arbitrate(stream, &message).map_err(|error| match error {
                // An unknown device is an error in the first message, and a changed device in a
                // later one.
                RpcError::NoDevice(_) if *has_begun => RpcError::StreamMoved,
                error => error,
            })?;
            *has_begun = true;
        }
        _ if !*has_begun => return Err(RpcError::NoArbitration),
        Some(Update::Packet(packet)) => packet_out(&mut state, stream, packet),
        Some(Update::DigestAck(ack)) => refuse_digest(&mut state, stream, ack),
        Some(Update::Other(other)) => {
            let details = Details::Other(StreamOtherError { other: Some(other) });
            let (code, text) = (Code::Unimplemented, "not supported");
            state.send(stream, Reply::Error(stream_error(code, text, details)));
        }
        None => {
            let details = Details::Other(StreamOtherError { other: None });
            let (code, text) = (Code::InvalidArgument, "the message has no content");
            state.send(stream, Reply::Error(stream_error(code, text, details)));
        }
    }
    Ok(())
}

/// Answers a digest acknowledgement with an error: there are no digests.
fn refuse_digest(state: &mut ServiceState, stream: StreamId, ack: DigestListAck) {
    let details = Details::DigestListAck(DigestListAckError { digest_list_ack: Some(ack) });
    let error = stream_error(Code::NotFound, "the program has no digests", details);
    state.send(stream, Reply::Error(error));
}

/// Maximum number of payload bytes that an error quotes.
///
/// The limit is above the length of a frame, and below the length of a queue.
const QUOTED_PAYLOAD_MAX: usize = 1 << 16;

/// Sends a packet of the primary by the device, or reports the error.
fn packet_out(state: &mut ServiceState, stream: StreamId, mut packet: PacketOut) {
    let refused = |code, message: &str| Err((code, message.to_owned()));
    let result = if !state.arbiter.is_primary_stream(stream) {
        refused(Code::PermissionDenied, "only the primary controller may send packets")
    } else if !state.pipeline.is_running() {
        refused(Code::FailedPrecondition, "no forwarding pipeline is set: set one first")
    } else if !is_whole(state, &packet) {
        refused(
            Code::InvalidArgument,
            "the metadata is not that of packet_out in the P4Info: send its fields only",
        )
    } else {
        state.device.send(&packet).or_else(|error| refused(code_of(error), &error.to_string()))
    };
    if let Err((code, message)) = result {
        packet.payload.truncate(QUOTED_PAYLOAD_MAX);
        let details = Details::PacketOut(PacketOutError { packet_out: Some(packet) });
        state.send(stream, Reply::Error(stream_error(code, &message, details)));
    }
}

/// Returns the gRPC status code of a refused packet-out.
const fn code_of(error: PacketError) -> Code {
    match error {
        PacketError::Frame | PacketError::Port => Code::InvalidArgument,
        PacketError::Busy => Code::ResourceExhausted,
    }
}

/// Returns whether each metadata field occurs once with a value that fits.
fn is_whole(state: &ServiceState, packet: &PacketOut) -> bool {
    let expected = &state.pipeline.store.schema.packet_out;
    let fits = |id: &u32, bytes: &[u8]| {
        expected.get(id).is_some_and(|width| value::checked(bytes, *width).is_ok())
    };
    let mut ids: Vec<u32> = packet.metadata.iter().map(|field| field.metadata_id).collect();
    ids.sort_unstable();
    ids.iter().eq(expected.keys())
        && packet.metadata.iter().all(|field| fits(&field.metadata_id, &field.value))
}

/// Returns an error message for the stream.
fn stream_error(code: Code, message: &str, details: Details) -> StreamError {
    StreamError {
        canonical_code: code.into(),
        message: message.to_owned(),
        details: Some(details),
        ..StreamError::default()
    }
}
