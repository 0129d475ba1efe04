//! The plan of a run: a row of steps, each drawn from the seed and its own place in the row, so that any of them can be
//! left out and the others stay what they are. That is what lets a failing plan be made small.

use crate::random::Random;
use std::collections::BTreeSet;

/// Seeds that have failed once; the bugs they found are gone, and shall stay so.
const FAILED_ONCE: &str = include_str!("../seeds.txt");

/// Steps after which a run ends whatever it has reached; far more than any needs.
const STEPS_PER_COMMAND: u64 = 20;

/// Added to a step to name the disk of the life that begins in it.
const DISK: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The run ends when its clients have given so many commands.
    pub commands: u64,
    /// Steps, and disks of lives, that are left out.
    pub dropped: BTreeSet<u64>,
    /// The step before which it ends, if that comes first.
    pub end: u64,
}

/// What happens next. Not the unit of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client makes up its mind.
    Act,
    /// What the clients have said reaches the server.
    Go,
    /// Time passes without anybody saying anything.
    Quiet,
    /// A question that has the server to itself.
    Alone,
    /// Nothing happens for long enough that the journal is sealed.
    Rest,
    Connect,
    Disconnect,
    /// Somebody sets the wall clock.
    Clock,
    /// The disk stops answering, or answers again.
    Stall,
    CleanStop,
    Kill,
}

impl Step {
    pub fn draw(random: &mut Random) -> Step {
        match random.below(1_000) {
            0..690 => Step::Act,
            690..880 => Step::Go,
            880..920 => Step::Quiet,
            920..950 => Step::Alone,
            950..960 => Step::Rest,
            960..980 => Step::Connect,
            980..985 => Step::Disconnect,
            985..990 => Step::Clock,
            990..997 => Step::Stall,
            997..998 => Step::CleanStop,
            998..999 => Step::Kill,
            _ => Step::Act,
        }
    }
}

impl Plan {
    pub fn new(seed: u64, commands: u64) -> Plan {
        Plan { seed, commands, dropped: BTreeSet::new(), end: commands * STEPS_PER_COMMAND }
    }

    /// The plans that have failed once, oldest first.
    pub fn failed_once() -> Vec<Plan> {
        FAILED_ONCE.lines().filter_map(failed_once).collect()
    }

    pub fn has(&self, step: u64) -> bool {
        step < self.end && !self.dropped.contains(&step)
    }

    /// Whether the disk of the life that begins in this step may fail.
    pub fn has_disk(&self, step: u64) -> bool {
        !self.dropped.contains(&(step | DISK))
    }

    pub fn random(&self, step: u64) -> Random {
        Random::part(self.seed, step + 1)
    }

    pub fn disk_random(&self, step: u64) -> Random {
        Random::part(self.seed, (step | DISK) + 1)
    }

    /// Everything that could be left out.
    fn parts(&self) -> Vec<u64> {
        let steps = (0..self.end).filter(|step| self.has(*step));
        let disks = (0..=self.end).filter(|step| self.has_disk(*step)).map(|step| step | DISK);
        disks.chain(steps).collect()
    }

    fn without(&self, parts: &[u64]) -> Plan {
        let mut plan = self.clone();
        plan.dropped.extend(parts);
        plan
    }

    /// A plan for which `fails` still holds and from which hardly anything more can be left out. First large pieces
    /// go, then ever smaller ones, for as long as there are tries.
    pub fn shrunk(mut self, mut tries: u32, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
        let mut size = self.parts().len().div_ceil(2);
        loop {
            let mut has_shrunk = false;
            for piece in self.parts().chunks(size) {
                if tries == 0 {
                    return self;
                }
                tries -= 1;
                let smaller = self.without(piece);
                if fails(&smaller) {
                    self = smaller;
                    has_shrunk = true;
                }
            }
            match size {
                1 if !has_shrunk => return self,
                1 => {}
                _ => size = size.div_ceil(2),
            }
        }
    }

    /// How many steps are left.
    pub fn steps(&self) -> usize {
        (0..self.end).filter(|step| self.has(*step)).count()
    }
}

/// A line of seeds.txt: a seed, its commands, and why it is there. Or a comment.
fn failed_once(line: &str) -> Option<Plan> {
    let mut words = line.split_whitespace();
    let (seed, commands) = (words.next()?, words.next()?);
    if seed.starts_with('#') {
        return None;
    }
    let number = |word: &str| word.parse().expect("seeds.txt has a seed and its commands in each line");
    Some(Plan::new(number(seed), number(commands)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_shrinks_to_the_steps_that_matter() {
        let needed = [17, 400, 401];
        let plan = Plan::new(1, 50).shrunk(10_000, |plan| needed.iter().all(|step| plan.has(*step)));
        assert_eq!((0..plan.end).filter(|step| plan.has(*step)).collect::<Vec<_>>(), needed);
        assert!(!plan.has_disk(17));
    }

    #[test]
    fn a_step_is_the_same_whatever_is_left_out() {
        let plan = Plan::new(5, 10);
        let smaller = plan.without(&[1, 2, 3]);
        assert_eq!(plan.random(4).number(), smaller.random(4).number());
        assert_ne!(plan.random(4).number(), plan.random(5).number());
    }
}
