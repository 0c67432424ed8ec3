//! Threads that hang, for the watchdog.

use std::{pin::pin, time::Duration};

use shunt_datapath::{Command, thread::CurrentIteration};
use tokio::sync::oneshot;

use super::{DataPlane, EVICTION, FORESIGHT, LEARNER, LISTENER, OFFLOAD};

impl DataPlane {
    /// Returns the packet threads that do not reply within `limit`.
    ///
    /// A thread that iterates or sleeps replies immediately. A thread that hangs in an iteration,
    /// or has ended, does not reply.
    pub(crate) async fn stalled_threads(&self, limit: Duration) -> Vec<usize> {
        let deadline = tokio::time::sleep(limit);
        let mut deadline = pin!(deadline);
        let mut answers = Vec::new();
        for thread in 0..usize::from(self.threads_count()) {
            let (sender, answer) = oneshot::channel();
            // The receiver is dropped if the caller was cancelled.
            let reply = Box::new(move |()| {
                let _ = sender.send(());
            });
            answers.push((thread, self.try_send(thread, Command::Ping(reply)).err(), answer));
        }
        let mut stalled = Vec::new();
        for (thread, refused, answer) in answers {
            let answered = async {
                if let Some(ping) = refused {
                    self.send(thread, ping).await;
                }
                answer.await.is_ok()
            };
            let is_alive = tokio::select! {
                biased;
                is_alive = answered => is_alive,
                () = &mut deadline => false,
            };
            if !is_alive {
                stalled.push(thread);
            }
        }
        stalled
    }

    /// Returns the other threads that are in an iteration, with that iteration.
    pub(crate) fn current_iterations(&self) -> Vec<(&'static str, CurrentIteration)> {
        let running = self.running.lock();
        let eviction = running.eviction.running().and_then(|own| own.iterations()?.current());
        let offload = running.offload.as_ref().and_then(|own| own.slot.running());
        let all = [
            (EVICTION, eviction),
            (LEARNER, self.learner.current_iteration()),
            (LISTENER, self.listener.worker.current_iteration()),
            (FORESIGHT, self.foresight.worker.current_iteration()),
            (OFFLOAD, offload.and_then(|own| own.iterations()?.current())),
        ];
        all.into_iter().filter_map(|(name, current)| Some((name, current?))).collect()
    }
}
