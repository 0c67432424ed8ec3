//! Growth of large lists.

/// Grows the capacity of a list, and copies its elements alone.
///
/// `reserve_exact` may copy the whole capacity, which makes memory resident that no element uses.
pub(super) fn grow<T>(list: &mut Vec<T>, capacity: usize) {
    if list.capacity() < capacity {
        let mut grown = Vec::with_capacity(capacity);
        grown.append(list);
        *list = grown;
    }
}
