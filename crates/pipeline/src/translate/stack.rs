//! The stack of `push` and `pop`: values that a packet carries from rule to rule.
//!
//! A clone and a continuation have a copy of it; the peer bridge of a patch port begins with none.

use super::context::Translation;
use crate::{action::Subfield, traversals::traversal::TraversalError};

/// What was pushed, the last at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    values: Vec<Pushed>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pushed {
    value: u128,
    /// Bytes that it counts for: its own and one.
    bytes: usize,
}

/// The most bytes of a stack, as in Open vSwitch.
const STACK_MAX: usize = 1 << 16;

impl Stack {
    fn push(&mut self, value: u128, width: u8) -> Result<(), TraversalError> {
        let pushed = Pushed { value, bytes: usize::from(width.div_ceil(8)) + 1 };
        self.bytes += pushed.bytes;
        self.values.push(pushed);
        if self.bytes > STACK_MAX {
            return Err(TraversalError::StackTooDeep(STACK_MAX));
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<u128> {
        let popped = self.values.pop()?;
        self.bytes -= popped.bytes;
        Some(popped.value)
    }
}

impl Translation<'_> {
    /// `push`: remembers bits of a field; zero if the packet does not have it.
    pub(super) fn push(&mut self, source: Subfield) -> Result<(), TraversalError> {
        let value = if self.has_field(source.field) { self.read_bits(source) } else { 0 };
        self.stack.push(value, source.width)
    }

    /// `pop`: writes what was pushed last, its lower bits if it is wider. Does nothing if there is
    /// nothing.
    pub(super) fn pop(&mut self, target: Subfield) {
        if let Some(value) = self.stack.pop() {
            let bits = target.bits();
            self.set_field(target.field, value << target.offset & bits, bits);
        }
    }
}
