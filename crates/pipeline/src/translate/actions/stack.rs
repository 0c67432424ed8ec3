//! The stack of `push` and `pop`: values that a packet carries from rule to rule.
//!
//! A clone and a continuation have a copy of the stack; the peer bridge of a patch port starts with
//! an empty stack.

use crate::{
    action::Subfield, translate::working_packet::WorkingPacket,
    traversals::traversal::TraversalError,
};

/// The pushed values, with the value to pop next at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    /// The pushed values, oldest first.
    values: Vec<PushedValue>,
    /// The size of all values, which has a maximum.
    bytes: usize,
}

/// A value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PushedValue {
    value: u128,
    /// Number of bytes that count against the limit: the bytes of the value, plus one.
    bytes: usize,
}

/// The most bytes on a stack, as in Open vSwitch.
const STACK_MAX: usize = 1 << 16;

impl Stack {
    /// Pushes a value, if the stack has room.
    fn push(&mut self, value: u128, width: u8) -> Result<(), TraversalError> {
        let pushed = PushedValue { value, bytes: usize::from(width.div_ceil(8)) + 1 };
        self.bytes += pushed.bytes;
        self.values.push(pushed);
        if self.bytes > STACK_MAX {
            return Err(TraversalError::StackTooDeep(STACK_MAX));
        }
        Ok(())
    }

    /// Pops the value that was pushed last.
    fn pop(&mut self) -> Option<u128> {
        let popped = self.values.pop()?;
        self.bytes -= popped.bytes;
        Some(popped.value)
    }

    /// `push`: pushes bits of a field; zero if the packet lacks the field.
    pub(in crate::translate) fn push_bits(
        &mut self,
        packet: &mut WorkingPacket,
        source: Subfield,
    ) -> Result<(), TraversalError> {
        let value = if packet.has_field(source.field) { packet.read_bits(source) } else { 0 };
        self.push(value, source.width)
    }

    /// `pop`: writes the value that was pushed last, or its lower bits.
    ///
    /// Does nothing if the stack is empty.
    pub(in crate::translate) fn pop_bits(&mut self, packet: &mut WorkingPacket, target: Subfield) {
        if let Some(value) = self.pop() {
            let bits = target.bits();
            packet.set_field(target.field, value << target.offset & bits, bits);
        }
    }
}
