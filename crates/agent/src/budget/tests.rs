use super::*;

const SECOND: u64 = 1_000_000_000;
/// Between two looks of an agent.
const LOOK: u64 = SECOND / 4;

fn budget(percent: f64) -> Budget {
    Budget::new(Limits { percent: Some(percent), ..Limits::default() })
}

fn dropped(unit: &str, percent: f64, total: f64, pause_s: u64) -> Change {
    Change::Drop { unit: unit.to_owned(), percent, total, pause_s }
}

fn restored(unit: &str) -> Change {
    Change::Restore { unit: unit.to_owned() }
}

#[test]
fn the_dearest_goes_until_the_rest_is_within_the_budget() {
    let mut budget = budget(5.0);
    assert_eq!(budget.decide(0, None), []);
    for (unit, percent) in [("a", 3), ("b", 40), ("c", 20)] {
        budget.spend(unit, SECOND / 100 * percent);
    }
    let changes = budget.decide(SECOND, None);
    assert_eq!(changes, [dropped("b", 40.0, 63.0, 30), dropped("c", 20.0, 63.0, 30)]);
    assert_eq!(budget.dropped(2 * SECOND).collect::<Vec<_>>(), [("b", 29), ("c", 29)]);
    budget.spend("a", SECOND / 100 * 3);
    assert_eq!(budget.decide(2 * SECOND, None), []);
    assert_eq!(budget.percent(), Some(3.0));
}

#[test]
fn what_a_dropped_unit_costs_until_it_is_out_drops_no_other() {
    let mut budget = budget(5.0);
    budget.begin(0);
    budget.spend("hot", SECOND / 2);
    budget.spend("cheap", SECOND / 100);
    assert_eq!(budget.decide(SECOND, None), [dropped("hot", 50.0, 51.0, 30)]);
    budget.spend("hot", SECOND / 4);
    budget.spend("cheap", SECOND / 100);
    assert_eq!(budget.decide(2 * SECOND, None), []);
    assert_eq!(budget.percent(), Some(26.0));
}

#[test]
fn too_much_for_a_window_is_seen_before_it_is_over() {
    let mut budget = budget(5.0);
    budget.begin(0);
    budget.spend("hot", SECOND / 5);
    assert_eq!(budget.decide(SECOND / 10, None), []);
    assert_eq!(budget.decide(LOOK, None), [dropped("hot", 80.0, 80.0, 30)]);
    // What a whole window may cost may come at its begin.
    let mut budget = self::budget(5.0);
    budget.begin(0);
    budget.spend("burst", SECOND / 20);
    assert_eq!(budget.decide(LOOK, None), []);
    assert_eq!((budget.decide(SECOND, None), budget.percent()), (Vec::new(), Some(5.0)));
}

#[test]
fn pauses_grow_and_begin_anew_after_a_good_time() {
    let mut budget = budget(5.0);
    budget.decide(0, None);
    let mut now = 0;
    let mut pauses = Vec::new();
    let mut restored = Vec::new();
    for second in 1..400 {
        now = second * SECOND;
        if budget.dropped(now).next().is_none() {
            budget.spend("hot", SECOND / 2);
        }
        for change in budget.decide(now, None) {
            match change {
                Change::Drop { pause_s, .. } => pauses.push(pause_s),
                Change::Restore { .. } => restored.push(second),
            }
        }
    }
    assert_eq!((pauses, restored), (vec![30, 60, 120, 240], vec![31, 92, 213]));
    // It comes back and is quiet.
    for _ in 0..600 {
        now += SECOND;
        budget.spend("hot", SECOND / 100);
        let changes = budget.decide(now, None);
        assert!(changes.iter().all(|change| matches!(change, Change::Restore { .. })));
    }
    budget.spend("hot", SECOND);
    now += SECOND;
    assert_eq!(budget.decide(now, None), [dropped("hot", 100.0, 100.0, 30)]);
}

/// What two hot functions cost while they are watched and looked at as an agent does it, by when: the mean up to
/// each moment at which one of them comes back.
fn means(percent: f64, hot: &[(&str, u64)], seconds: u64) -> Vec<f64> {
    let mut budget = budget(percent);
    budget.begin(0);
    let (mut means, mut spent) = (Vec::new(), 0);
    for now in (1..seconds * 4).map(|look| look * LOOK) {
        let away: Vec<String> = budget.dropped(now).map(|(unit, _)| unit.to_owned()).collect();
        for (unit, percent) in hot.iter().filter(|(unit, _)| !away.iter().any(|it| it == unit)) {
            spent += LOOK / 100 * percent;
            budget.spend(unit, LOOK / 100 * percent);
        }
        let changes = budget.decide(now, None);
        if changes.iter().any(|change| matches!(change, Change::Restore { .. })) {
            means.push(spent as f64 * 100.0 / now as f64);
        }
    }
    means
}

#[test]
fn the_mean_over_all_attempts_stays_within_the_budget() {
    let two = [("a", 30), ("b", 26), ("cheap", 0)];
    for percent in [0.5, 1.0, 5.0, 20.0] {
        for hot in [&two[..], &two[1..], &[("a", 100)]] {
            let means = means(percent, hot, 20_000);
            assert!(means.len() >= 4, "{percent}: {means:?}");
            assert!(means.iter().all(|mean| *mean <= percent * 1.01), "{percent}: {means:?}");
        }
    }
}

#[test]
fn those_that_come_back_are_tried_one_after_the_other() {
    let mut budget = budget(5.0);
    budget.begin(0);
    for unit in ["a", "b"] {
        budget.spend(unit, SECOND);
    }
    let changes = budget.decide(SECOND, None);
    assert_eq!(changes, [dropped("a", 100.0, 200.0, 39), dropped("b", 100.0, 200.0, 39)]);
    assert_eq!(budget.decide(39 * SECOND, None), []);
    assert_eq!(budget.decide(40 * SECOND, None), [restored("a")]);
    assert_eq!(budget.decide(40 * SECOND + LOOK, None), []);
    budget.spend("a", SECOND);
    let again = budget.decide(41 * SECOND, None);
    assert_eq!(again, [dropped("a", 100.0, 100.0, 60)]);
    // Not before that is paid for.
    assert_eq!(budget.decide(59 * SECOND, None), []);
    assert_eq!(budget.decide(60 * SECOND, None), [restored("b")]);
}

#[test]
fn no_estimate_is_larger_than_what_the_process_used() {
    let mut budget = budget(5.0);
    budget.decide(0, Some(7 * SECOND));
    budget.spend("a", 3 * SECOND);
    budget.spend("b", SECOND);
    let changes = budget.decide(SECOND, Some(7 * SECOND + SECOND / 50));
    assert_eq!((changes, budget.percent()), (Vec::new(), Some(4.0)));
    let units: Vec<_> = budget.units().collect();
    assert_eq!(units, [("a", Some(3.0)), ("b", Some(1.0))]);
}

/// What it has used counts from the begin of the window, not from the last look.
#[test]
fn a_process_that_uses_little_is_not_taken_for_one_that_costs_little() {
    let mut budget = budget(5.0);
    budget.decide(0, Some(0));
    let mut changes = Vec::new();
    for look in 1..=4 {
        budget.spend("a", LOOK / 100 * 6);
        changes.extend(budget.decide(look * LOOK, Some(look * LOOK / 10)));
    }
    assert_eq!(changes, [dropped("a", 6.0, 6.0, 30)]);
}

#[test]
fn what_comes_after_a_quiet_time_is_not_weighed_over_all_of_it() {
    let mut budget = budget(5.0);
    budget.begin(0);
    assert_eq!((budget.percent(), budget.is_calm()), (None, false));
    assert_eq!(budget.decide(SECOND, Some(0)), []);
    assert_eq!((budget.percent(), budget.is_calm()), (Some(0.0), true));
    budget.rest(600 * SECOND);
    budget.spend("hot", SECOND / 10);
    assert!(!budget.is_calm(), "it has to be weighed, whether more comes or not");
    let changes = budget.decide(600 * SECOND + LOOK, Some(60 * SECOND));
    assert_eq!(changes, [dropped("hot", 40.0, 40.0, 30)]);
}

#[test]
fn a_larger_limit_brings_back_at_once_what_was_given_up() {
    let mut budget = budget(5.0);
    budget.begin(0);
    budget.spend("hot", SECOND);
    assert_eq!(budget.decide(SECOND, None).len(), 1);
    budget.limit(Some(4.0));
    assert_eq!(budget.decide(2 * SECOND, None), []);
    budget.limit(None);
    assert_eq!(budget.decide(3 * SECOND, None), [restored("hot")]);
    budget.spend("hot", SECOND);
    assert_eq!((budget.decide(4 * SECOND, None), budget.percent()), (Vec::new(), Some(100.0)));
}

#[test]
fn without_a_limit_costs_are_only_counted() {
    let mut budget = Budget::new(Limits::default());
    budget.decide(0, None);
    budget.spend("a", 10 * SECOND);
    assert_eq!((budget.decide(SECOND, None), budget.percent()), (Vec::new(), Some(1000.0)));
}
