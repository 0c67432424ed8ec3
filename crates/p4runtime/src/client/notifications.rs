//! Notifications from the session worker to the owner, in order, with a wake-up call.
//!
//! The number of waiting results is bounded by the number of pending operations. [`PACKETS_MAX`]
//! bounds the number of waiting packets.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use shunt_gigaflow::offload::OffloadEvent;

use super::DevicePacket;

/// Number of packets that may wait for the owner; further ones are dropped.
pub(super) const PACKETS_MAX: usize = 4096;

/// A notification for the owner.
#[derive(Debug)]
pub(super) enum Notification {
    /// Several events in one notification, because each notification wakes the owner.
    Events(Vec<OffloadEvent>),
    /// The session is restored, with the number of entries per table.
    Restored(BTreeMap<u32, usize>),
    Packet(DevicePacket),
}

/// The sending end of the channel, which the session worker holds.
pub(super) struct NotificationSender {
    notifications: Sender<Notification>,
    wake: Box<dyn Fn() + Send + Sync>,
    packets: Arc<PacketBacklog>,
}

/// The receiving end of the channel, which the owner of the device holds.
#[derive(Debug)]
pub(super) struct NotificationReceiver {
    notifications: Receiver<Notification>,
    packets: Arc<PacketBacklog>,
}

/// The number of packets between worker and owner.
#[derive(Debug, Default)]
struct PacketBacklog {
    queued: AtomicUsize,
    dropped: AtomicU64,
}

/// Creates both ends; `wake` is called for each notification.
pub(super) fn notification_channel(
    wake: impl Fn() + Send + Sync + 'static,
) -> (NotificationSender, NotificationReceiver) {
    let (sender, receiver) = channel();
    let packets = Arc::new(PacketBacklog::default());
    let notification_sender = NotificationSender {
        notifications: sender,
        wake: Box::new(wake),
        packets: Arc::clone(&packets),
    };
    (notification_sender, NotificationReceiver { notifications: receiver, packets })
}

impl NotificationSender {
    /// Sends a notification; has no effect if the owner has dropped its end.
    pub(super) fn send(&self, notification: Notification) {
        if let Notification::Packet(_) = notification
            && self.packets.queued.fetch_add(1, Ordering::Relaxed) >= PACKETS_MAX
        {
            self.packets.queued.fetch_sub(1, Ordering::Relaxed);
            self.packets.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.notifications.send(notification).is_ok() {
            (self.wake)();
        }
    }
}

impl NotificationReceiver {
    /// Returns the next notification.
    pub(super) fn try_receive(&self) -> Option<Notification> {
        let notification = self.notifications.try_recv().ok()?;
        if let Notification::Packet(_) = notification {
            self.packets.queued.fetch_sub(1, Ordering::Relaxed);
        }
        Some(notification)
    }

    /// Returns the number of packets that were dropped because too many waited.
    pub(super) fn packets_dropped(&self) -> u64 {
        self.packets.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the notification of a packet-in.
    fn packet() -> Notification {
        let (payload, ingress_port, reason, miss_tag, last_stage) = (Vec::new(), 1, 0, 0, 0);
        Notification::Packet(DevicePacket { payload, ingress_port, reason, miss_tag, last_stage })
    }

    #[test]
    fn excess_packets_are_dropped_and_counted() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let (sender, receiver) = notification_channel(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (0..PACKETS_MAX + 3).for_each(|_| sender.send(packet()));
        assert_eq!(receiver.packets_dropped(), 3);
        assert_eq!(wakes.load(Ordering::Relaxed), PACKETS_MAX);
        // Events are never dropped, and taking one packet makes room for another.
        sender.send(Notification::Events(vec![OffloadEvent::Restored]));
        assert!(matches!(receiver.try_receive(), Some(Notification::Packet(_))));
        sender.send(packet());
        let received = std::iter::from_fn(|| receiver.try_receive());
        assert_eq!(
            received.filter(|notification| matches!(notification, Notification::Packet(_))).count(),
            PACKETS_MAX
        );
        assert_eq!(receiver.packets_dropped(), 3);
    }
}
