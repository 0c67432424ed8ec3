//! One controller's stream: arbitration first, then whatever it sends.

use std::sync::Arc;

use parking_lot::Mutex;
use tonic::{Code, Status, Streaming};

use super::{arbiter::StreamId, device::PacketError, state::State};
use crate::{
    error::RequestError,
    value,
    wire::p4::v1::{
        DigestListAck, DigestListAckError, PacketOut, PacketOutError, StreamError,
        StreamMessageRequest, StreamOtherError, stream_error::Details,
        stream_message_request::Update, stream_message_response::Update as Reply,
    },
};

/// Serves a stream until it ends; why it does, if it was not the controller's wish.
pub(super) async fn serve(
    state: &Arc<Mutex<State>>,
    stream: StreamId,
    mut requests: Streaming<StreamMessageRequest>,
) -> Result<(), Status> {
    let mut has_begun = false;
    let in_time = state.lock().settings.arbitration_timeout;
    let first = tokio::time::timeout(in_time, requests.message()).await;
    let mut next = first.map_err(|_| RequestError::Late)??;
    while let Some(request) = next {
        take(state, stream, (request, &mut has_begun))?;
        next = requests.message().await?;
    }
    Ok(())
}

fn take(
    state: &Mutex<State>,
    stream: StreamId,
    (request, has_begun): (StreamMessageRequest, &mut bool),
) -> Result<(), RequestError> {
    let mut state = state.lock();
    match request.update {
        Some(Update::Arbitration(message)) => {
            state.arbitrate(stream, &message).map_err(|error| match error {
                // Of the first message another device is unknown, of a later one a move.
                RequestError::NoDevice(_) if *has_begun => RequestError::StreamMoved,
                error => error,
            })?;
            *has_begun = true;
        }
        _ if !*has_begun => return Err(RequestError::NoArbitration),
        Some(Update::Packet(packet)) => packet_out(&mut state, stream, packet),
        Some(Update::DigestAck(ack)) => refuse_digest(&mut state, stream, ack),
        Some(Update::Other(other)) => {
            let details = Details::Other(StreamOtherError { other: Some(other) });
            let what = (Code::Unimplemented, "not served");
            state.tell(stream, Reply::Error(stream_error(what, details)));
        }
        None => {
            let details = Details::Other(StreamOtherError { other: None });
            let what = (Code::InvalidArgument, "a message without content");
            state.tell(stream, Reply::Error(stream_error(what, details)));
        }
    }
    Ok(())
}

fn refuse_digest(state: &mut State, stream: StreamId, ack: DigestListAck) {
    let details = Details::DigestListAck(DigestListAckError { digest_list_ack: Some(ack) });
    let error = stream_error((Code::NotFound, "there are no digests"), details);
    state.tell(stream, Reply::Error(error));
}

/// Bytes of a payload that are sent back with what is wrong with it: more than a frame has, and less
/// than what waits for a controller may have.
const ECHOED_MAX: usize = 1 << 16;

fn packet_out(state: &mut State, stream: StreamId, mut packet: PacketOut) {
    let refused = |code, message: &str| Err((code, message.to_owned()));
    let result = if !state.arbiter.is_primary_stream(stream) {
        refused(Code::PermissionDenied, "only the primary controller sends packets")
    } else if !state.pipeline.is_running() {
        refused(Code::FailedPrecondition, "there is no forwarding pipeline yet")
    } else if !is_whole(state, &packet) {
        refused(Code::InvalidArgument, "the metadata is not that of packet_out")
    } else {
        state.device.send(&packet).or_else(|error| refused(code_of(error), &error.to_string()))
    };
    if let Err((code, message)) = result {
        packet.payload.truncate(ECHOED_MAX);
        let details = Details::PacketOut(PacketOutError { packet_out: Some(packet) });
        state.tell(stream, Reply::Error(stream_error((code, &message), details)));
    }
}

const fn code_of(error: PacketError) -> Code {
    match error {
        PacketError::Frame | PacketError::Port => Code::InvalidArgument,
        PacketError::Busy => Code::ResourceExhausted,
    }
}

/// Whether each field of the metadata is there once, and has room for its value.
fn is_whole(state: &State, packet: &PacketOut) -> bool {
    let expected = &state.pipeline.store.schema.packet_out;
    let fits = |id: &u32, bytes: &[u8]| {
        expected.get(id).is_some_and(|width| value::checked(bytes, *width).is_ok())
    };
    let mut ids: Vec<u32> = packet.metadata.iter().map(|field| field.metadata_id).collect();
    ids.sort_unstable();
    ids.iter().eq(expected.keys())
        && packet.metadata.iter().all(|field| fits(&field.metadata_id, &field.value))
}

fn stream_error((code, message): (Code, &str), details: Details) -> StreamError {
    StreamError {
        canonical_code: code.into(),
        message: message.to_owned(),
        details: Some(details),
        ..StreamError::default()
    }
}
