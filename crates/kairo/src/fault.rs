//! A step that fails when a test wants it.

/// When the next step fails, if one does.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// Places that it still passes.
    away: Option<usize>,
}

impl Fault {
    /// A step fails at the next place where it may, or so many later.
    pub(crate) const fn fail_in(&mut self, places: usize) {
        self.away = Some(places);
    }

    /// At one of the places where a step may fail: at its beginning, or behind an object.
    ///
    /// # Panics
    ///
    /// When it is to fail here.
    pub(crate) fn come_nearer(&mut self) {
        let away = self.away.take();
        assert!(away != Some(0), "a fault was asked for");
        self.away = away.map(|away| away - 1);
    }
}
