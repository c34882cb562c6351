//! What is known about the hold of each namespace, and when whom to ask next. No IO and no clock: the time is handed in.
//!
//! The policies tell no claimed sets of a namespace apart (a test of `admission` keeps it so), so one dry run on any of them says
//! what holds for all. What can differ from set to set is a refusal by somebody else, a foreign policy or a right for one name only: then
//! others of the namespace are asked, and the refusal counts only if none of them says more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sts_plus_decide::HoldState;
use tokio::time::Instant;

use crate::pace;

/// How long "it is held" is believed, at least and at most: many namespaces must not come back at the same moment.
const BELIEVED: (Duration, Duration) = (Duration::from_mins(4), Duration::from_mins(5));
/// The first pause while it is not held, or cannot be found out. It doubles up to the longest.
const DOUBTED: Duration = Duration::from_secs(20);
/// What the status remembers is believed so long before it is asked about: after a start there are more urgent things than a dry run.
const REMEMBERED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));
/// Policies need a moment until the API server acts on them: after a change of one this is how long it is asked again and again…
const SETTLING: Duration = Duration::from_secs(8);
/// …with these pauses.
const SETTLING_PAUSE: Duration = Duration::from_millis(1500);
/// A dry run that was begun and never came back is made again after this time.
const LOST: Duration = Duration::from_mins(1);
/// A namespace that nobody looked at for so long has no claimed sets any more. Each set is looked at every few minutes.
const FORGOTTEN: Duration = Duration::from_mins(15);
/// So many sets of a namespace are kept to be asked about, the first by name, so that it is the same one each time.
const CANDIDATES: usize = 4;

/// All namespaces with claimed sets.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    known: HashMap<Arc<str>, Fact>,
    /// When whom to ask: each namespace stands here once.
    timetable: BTreeSet<(Instant, Arc<str>)>,
    /// When a policy was changed.
    changed: Option<Instant>,
}

#[derive(Debug)]
struct Fact {
    /// What a dry run has shown.
    shown: Option<HoldState>,
    /// What was said before, from memory: two different ones at most.
    said: Vec<HoldState>,
    /// The UID by the name.
    sets: BTreeMap<Box<str>, Box<str>>,
    /// Answers in a row that did not show a hold.
    failures: u32,
    looked_at: Instant,
    due: Instant,
}

/// Somebody to ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
}

/// What is to be found out now: the first of the sets that says something is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) namespace: Arc<str>,
    pub(super) sets: Vec<Candidate>,
    pub(super) begun: Instant,
}

/// What came of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Missing if everything failed in a way that says nothing about the hold.
    pub(super) state: Option<HoldState>,
    /// Sets that cannot be asked about (any more).
    pub(super) unfit: Vec<Candidate>,
}

impl Namespaces {
    /// What is believed about `set` of `namespace`, which is claimed: what a dry run has shown, or what its own status remembers, so that a
    /// restart alone changes no condition.
    pub(super) fn look(&mut self, namespace: &str, set: Candidate, memory: HoldState, now: Instant) -> HoldState {
        let known = match self.known.get_mut(namespace) {
            Some(known) => known,
            None => self.begin(namespace, &memory, now),
        };
        known.looked_at = now;
        known.sets.insert(set.name, set.uid);
        if known.sets.len() > CANDIDATES {
            known.sets.pop_last();
        }
        if let Some(shown) = &known.shown {
            return shown.clone();
        }
        if known.said.len() < 2 && !known.said.contains(&memory) {
            known.said.push(memory.clone());
        }
        memory
    }

    fn begin(&mut self, namespace: &str, memory: &HoldState, now: Instant) -> &mut Fact {
        let namespace: Arc<str> = namespace.into();
        let due = match memory {
            HoldState::Unknown => now,
            _ => now + pace::between(REMEMBERED.0, REMEMBERED.1),
        };
        self.timetable.insert((due, Arc::clone(&namespace)));
        self.known.entry(namespace).or_insert(Fact {
            shown: None,
            said: Vec::new(),
            sets: BTreeMap::new(),
            failures: 0,
            looked_at: now,
            due,
        })
    }

    /// A policy was changed: everything is found out anew, at once.
    pub(super) fn policies_changed(&mut self, now: Instant) {
        self.changed = Some(now);
        self.ask_all(|| now);
    }

    /// This operator leads from now on: what it knows may be of long ago, and it was not let ask meanwhile.
    pub(super) fn leads(&mut self, now: Instant) {
        self.ask_all(|| now + pace::between(REMEMBERED.0, REMEMBERED.1));
    }

    /// Every namespace is asked about anew, each when `due` says, whatever has failed before.
    fn ask_all(&mut self, due: impl Fn() -> Instant) {
        self.timetable.clear();
        for (namespace, known) in &mut self.known {
            (known.due, known.failures) = (due(), 0);
            self.timetable.insert((known.due, Arc::clone(namespace)));
        }
    }

    /// When there is something to ask, if ever.
    pub(super) fn next(&self) -> Option<Instant> {
        self.timetable.first().map(|(due, _)| *due)
    }

    /// What is to be asked now. It is not asked again before it is answered, or lost.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Question> {
        loop {
            let (_, namespace) = self.timetable.first().filter(|(due, _)| *due <= now).cloned()?;
            let Some(known) = self.known.get(&namespace) else {
                self.timetable.pop_first();
                continue;
            };
            if now.duration_since(known.looked_at) >= FORGOTTEN {
                self.forget(&namespace);
                continue;
            }
            let sets =
                known.sets.iter().map(|(name, uid)| Candidate { name: name.clone(), uid: uid.clone() }).collect();
            self.put_off(&namespace, now + LOST);
            return Some(Question { namespace, sets, begun: now });
        }
    }

    /// Hears the answer. True if it is news to somebody who has looked.
    pub(super) fn answered(&mut self, question: &Question, outcome: Outcome, now: Instant) -> bool {
        let changed = self.changed;
        let Some(known) = self.known.get_mut(&question.namespace) else { return false };
        for Candidate { name, uid } in outcome.unfit {
            if known.sets.get(&name) == Some(&uid) {
                known.sets.remove(&name);
            }
        }
        if known.sets.is_empty() {
            // The next one who looks is asked about at once, or there is none.
            let was_told = known.shown.is_some();
            self.forget(&question.namespace);
            return was_told;
        }
        if changed.is_some_and(|changed| question.begun < changed) {
            // It may be about the policies as they were. It is asked again by now.
            return false;
        }
        let is_held = matches!(outcome.state, Some(HoldState::Enforced | HoldState::Refusing));
        known.failures = if is_held { 0 } else { known.failures.saturating_add(1) };
        let pause = if changed.is_some_and(|changed| now < changed + SETTLING) {
            known.failures = 0;
            SETTLING_PAUSE
        } else if is_held {
            pace::between(BELIEVED.0, BELIEVED.1)
        } else {
            pace::after_failures(known.failures, DOUBTED, BELIEVED.1)
        };
        let is_news = outcome.state.is_some_and(|state| known.show(state));
        self.put_off(&question.namespace, now + pause);
        is_news
    }

    fn put_off(&mut self, namespace: &Arc<str>, due: Instant) {
        if let Some(known) = self.known.get_mut(namespace) {
            self.timetable.remove(&(known.due, Arc::clone(namespace)));
            self.timetable.insert((due, Arc::clone(namespace)));
            known.due = due;
        }
    }

    fn forget(&mut self, namespace: &Arc<str>) {
        if let Some(known) = self.known.remove(namespace) {
            self.timetable.remove(&(known.due, Arc::clone(namespace)));
        }
    }
}

impl Fact {
    /// True if somebody was told something else.
    fn show(&mut self, state: HoldState) -> bool {
        let is_news = match &self.shown {
            Some(shown) => *shown != state,
            None => self.said.iter().any(|said| *said != state),
        };
        self.said = Vec::new();
        self.shown = Some(state);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use sts_plus_api::Reason;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_mins(1);

    fn not() -> HoldState {
        HoldState::NotEnforced(Reason::PolicyNotEffective, "why".to_owned())
    }

    fn set(name: &str) -> Candidate {
        Candidate { name: name.into(), uid: format!("uid-{name}").into() }
    }

    fn says(state: HoldState) -> Outcome {
        Outcome { state: Some(state), unfit: Vec::new() }
    }

    /// The namespaces, and a time that only passes when it is told to.
    struct Rig {
        all: Namespaces,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { all: Namespaces::default(), now: Instant::now() }
        }

        fn look(&mut self, namespace: &str, name: &str, memory: HoldState) -> HoldState {
            self.all.look(namespace, set(name), memory, self.now)
        }

        /// Time passes until there is something to ask; how long, and what.
        fn wait(&mut self) -> (Duration, Question) {
            let begun = self.now;
            self.now = self.now.max(self.all.next().unwrap());
            (self.now - begun, self.all.take_due(self.now).unwrap())
        }

        fn answer(&mut self, question: &Question, outcome: Outcome) -> bool {
            self.all.answered(question, outcome, self.now)
        }

        /// Asks and answers; how long it took until it was asked.
        fn round(&mut self, outcome: Outcome) -> Duration {
            let (after, question) = self.wait();
            self.answer(&question, outcome);
            // Its sets are still there.
            self.look("ns", "a", HoldState::Unknown);
            after
        }
    }

    #[test]
    fn a_thousand_sets_of_a_namespace_are_one_question() {
        let mut rig = Rig::new();
        for number in 0..1000 {
            assert_eq!(rig.look("ns", &format!("web-{number:03}"), HoldState::Unknown), HoldState::Unknown);
        }
        let (after, question) = rig.wait();
        assert_eq!((after, question.namespace.as_ref()), (Duration::ZERO, "ns"));
        assert_eq!(
            question.sets,
            ["web-000", "web-001", "web-002", "web-003"].map(set),
            "few are kept, the first by name"
        );
        assert_eq!(rig.all.take_due(rig.now), None, "it is under way");
        assert!(rig.answer(&question, says(HoldState::Enforced)), "all of them have something new to look at");
        assert_eq!(rig.look("ns", "web-500", HoldState::Unknown), HoldState::Enforced);
        assert!(rig.all.next().unwrap() - rig.now >= BELIEVED.0);
    }

    #[test]
    fn each_namespace_is_asked_by_itself() {
        let mut rig = Rig::new();
        for namespace in ["one", "two"] {
            rig.look(namespace, "a", HoldState::Unknown);
        }
        let questions = [rig.wait().1, rig.wait().1];
        assert_eq!(questions.each_ref().map(|question| question.namespace.as_ref()), ["one", "two"]);
        rig.answer(&questions[0], says(HoldState::Enforced));
        rig.answer(&questions[1], says(not()));
        assert_eq!(rig.look("one", "a", HoldState::Unknown), HoldState::Enforced);
        assert_eq!(rig.look("two", "a", HoldState::Unknown), not());
    }

    #[test]
    fn what_each_status_remembers_is_believed_and_asked_about_a_little_later() {
        let mut rig = Rig::new();
        assert_eq!(rig.look("ns", "a", HoldState::Enforced), HoldState::Enforced);
        assert_eq!(rig.look("ns", "b", HoldState::Enforced), HoldState::Enforced);
        let (after, question) = rig.wait();
        assert!(after >= REMEMBERED.0 && after <= REMEMBERED.1, "{after:?}");
        assert!(!rig.answer(&question, says(HoldState::Enforced)), "a restart is news to nobody");

        let mut rig = Rig::new();
        rig.look("ns", "a", HoldState::Enforced);
        assert_eq!(rig.look("ns", "new", HoldState::Unknown), HoldState::Unknown, "it has no memory of its own");
        assert_eq!(rig.look("ns", "c", not()), not());
        let question = rig.wait().1;
        assert!(rig.answer(&question, says(HoldState::Enforced)), "one of them was told something else");
    }

    #[test]
    fn what_is_not_held_is_asked_about_less_and_less_and_again_soon_after_it_was_held() {
        let mut rig = Rig::new();
        rig.look("ns", "a", HoldState::Unknown);
        assert_eq!(rig.round(says(not())), Duration::ZERO);
        for whole in [20, 40, 80, 160, 300, 300, 300] {
            let after = rig.round(says(not()));
            assert!(after <= SECOND * whole && after >= SECOND * whole * 3 / 4, "{after:?} and not {whole} s");
        }
        rig.round(says(HoldState::Enforced));
        let after = rig.round(Outcome::default());
        assert!(after >= BELIEVED.0 && after <= BELIEVED.1, "{after:?}");
        assert_eq!(rig.look("ns", "a", HoldState::Unknown), HoldState::Enforced, "what says nothing changes nothing");
        assert!(rig.round(Outcome::default()) <= DOUBTED, "a failure is soon tried again");
        assert!(rig.round(Outcome::default()) > DOUBTED, "and then later");
    }

    #[test]
    fn after_a_change_of_a_policy_it_is_asked_at_once_and_then_for_a_while() {
        let mut rig = Rig::new();
        rig.look("ns", "a", HoldState::Unknown);
        for _ in 0..6 {
            rig.round(says(not()));
        }
        rig.now += MINUTE;
        let changed = rig.now;
        rig.all.policies_changed(rig.now);
        assert_eq!(rig.round(says(not())), Duration::ZERO);
        while rig.now < changed + SETTLING {
            assert_eq!(rig.round(says(not())), SETTLING_PAUSE);
        }
        assert!(rig.round(says(not())) <= DOUBTED, "the pauses begin anew");
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_believed() {
        let mut rig = Rig::new();
        rig.look("ns", "a", HoldState::Unknown);
        let before = rig.wait().1;
        rig.now += SECOND;
        rig.all.policies_changed(rig.now);
        let after = rig.all.take_due(rig.now).unwrap();
        assert!(rig.answer(&after, says(HoldState::Enforced)));
        assert!(!rig.answer(&before, says(not())));
        assert_eq!(rig.look("ns", "a", HoldState::Unknown), HoldState::Enforced);
    }

    #[test]
    fn an_answer_that_never_comes_is_asked_for_again() {
        let mut rig = Rig::new();
        rig.look("ns", "a", HoldState::Unknown);
        let (_, lost) = rig.wait();
        let (after, again) = rig.wait();
        assert_eq!((after, again.sets), (LOST, lost.sets));
    }

    #[test]
    fn a_set_that_is_gone_is_asked_about_no_more_and_another_of_its_name_is() {
        let mut rig = Rig::new();
        for name in ["a", "b"] {
            rig.look("ns", name, HoldState::Unknown);
        }
        let question = rig.wait().1;
        let anew = Candidate { name: "b".into(), uid: "another".into() };
        rig.all.look("ns", anew.clone(), HoldState::Unknown, rig.now);
        rig.answer(&question, Outcome { state: Some(HoldState::Enforced), unfit: vec![set("a"), set("b")] });
        assert_eq!(rig.wait().1.sets, [anew]);
    }

    #[test]
    fn a_namespace_without_claimed_sets_is_forgotten() {
        let mut rig = Rig::new();
        rig.look("gone", "a", HoldState::Unknown);
        let question = rig.wait().1;
        rig.answer(&question, Outcome { state: None, unfit: vec![set("a")] });
        assert!(rig.all.known.is_empty() && rig.all.timetable.is_empty(), "{:?}", rig.all);

        rig.look("quiet", "a", HoldState::Unknown);
        let end = rig.now + FORGOTTEN + MINUTE * 6;
        while let Some(due) = rig.all.next().filter(|due| *due < end) {
            rig.now = due;
            if let Some(question) = rig.all.take_due(due) {
                rig.answer(&question, says(HoldState::Enforced));
            }
        }
        assert!(rig.all.known.is_empty() && rig.all.timetable.is_empty(), "{:?}", rig.all);
    }
}
