//! Counts what a command touches (slots, chunks, timers, locks), so that tests can hold the cost of a command against
//! the size of its queue. In the product this is nothing at all.

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
pub(crate) fn touched(_count: usize) {
    #[cfg(test)]
    TOUCHED.with(|touched| touched.set(touched.get() + _count));
}

/// What was touched since the last time this was asked.
#[cfg(test)]
pub(crate) fn take_touched() -> usize {
    TOUCHED.with(|touched| touched.replace(0))
}
