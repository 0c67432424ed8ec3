//! Settings that can be changed while the switch runs.

use std::str::FromStr;

use shunt_datapath::{Command, command::Tuning};

use crate::{Config, SwitchError, control::Control};

impl Control {
    /// Changes a setting, as the configuration spells it.
    pub(crate) async fn set(&self, setting: &str, value: &str) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        let mut changed = self.config.lock().clone();
        match setting {
            "caches.idle_ms" => changed.caches.idle_ms = parse("caches.idle_ms", value)?,
            "caches.verify_one_in" => {
                changed.caches.verify_one_in = parse("caches.verify_one_in", value)?;
            }
            "threads.translations_per_turn" => {
                let turn = parse("threads.translations_per_turn", value)?;
                changed.threads.translations_per_turn = turn;
            }
            _ => {
                return Err(SwitchError::Range {
                    setting: "setting",
                    value: setting.to_owned(),
                    range: "one of those that can be changed while the switch runs",
                });
            }
        }
        changed.check()?;
        let tuning = tuning(&changed);
        *self.config.lock() = changed;
        for thread in 0..usize::from(self.plane.threads_count()) {
            self.plane.send(thread, Command::Tune(tuning)).await;
        }
        Ok(())
    }
}

const fn tuning(config: &Config) -> Tuning {
    Tuning {
        max_idle: config.caches.idle(),
        verify_one_in: config.caches.verify_one_in,
        translations_per_turn: config.threads.translations_per_turn,
    }
}

fn parse<T: FromStr>(setting: &'static str, value: &str) -> Result<T, SwitchError> {
    let range = "a whole number";
    value.parse().map_err(|_| SwitchError::Range { setting, value: value.to_owned(), range })
}
