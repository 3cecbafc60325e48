use super::*;

#[test]
fn a_connection_cannot_use_all_and_is_never_shut_out() {
    let budget = Budget::new(64 << 20);
    let (greedy, other) = (Account::of(&budget, 1 << 20), Account::of(&budget, 1 << 20));
    let quarter = greedy.charge(16 << 20).expect("a quarter");
    assert!(greedy.charge(1).is_none(), "more than its share");
    let rest = other.charge_anyway(100 << 20);
    assert_eq!((greedy.room(), Account::of(&budget, 1).room()), (0, ALWAYS));
    let third = Account::of(&budget, 1 << 20);
    assert!(third.charge(2 << 20).is_none(), "nothing is left");
    let little = third.charge(ALWAYS).expect("there is always a little");
    drop((quarter, rest, little));
    assert_eq!(budget.used(), 0);
    assert!(greedy.charge(16 << 20).is_some());
}

#[test]
fn those_who_fill_their_parts_one_after_the_other_leave_some() {
    let budget = Budget::new(64 << 20);
    let accounts: Vec<_> = (0..5).map(|_| Account::of(&budget, 1 << 20)).collect();
    let fill = |one: &Arc<Account>| one.charge(one.room()).expect("its part");
    let parts: Vec<_> = accounts.iter().map(fill).collect();
    let mib: Vec<_> = parts.iter().map(|part| part.bytes() >> 20).collect();
    assert_eq!(mib, [16, 12, 9, 6, 5], "each a quarter of what was left");
    assert!(accounts.iter().all(|one| !one.allows(1 << 20)), "nobody gets more when others come");
    assert!(!budget.take_shortage(), "they keep more than one call needs");
    let newcomer = Account::of(&budget, 12 << 20);
    drop(newcomer.charge(12 << 20).expect("one call"));
    drop(parts);
    assert_eq!(accounts[0].room(), 16 << 20);
}

#[test]
fn a_call_that_finds_no_room_is_told_of() {
    let budget = Budget::new(64 << 20);
    let (one, other) = (Account::of(&budget, 8 << 20), Account::of(&budget, 8 << 20));
    let full = other.charge_anyway(60 << 20);
    assert!(!other.allows(0) && !budget.take_shortage(), "who keeps much is refused for that");
    assert!(one.charge(8 << 20).is_none());
    assert!(budget.take_shortage() && !budget.take_shortage(), "once");
    drop(full);
    assert!(one.charge(8 << 20).is_some() && !budget.take_shortage());
}

#[test]
fn what_waits_is_told_from_what_somebody_works_with_and_from_what_goes_on() {
    let budget = Budget::new(64 << 20);
    let account = Account::of(&budget, 0);
    let (mut arguments, mut reply) = (account.charge_anyway(5 << 20), account.charge_anyway(3 << 20));
    let now = || (account.idle(), account.moved());
    assert_eq!(now(), (8 << 20, 0));
    arguments.begin_work();
    arguments.begin_work();
    assert_eq!(now(), (3 << 20, 5 << 20), "they wait no longer");
    arguments.set(6 << 20);
    reply.grow(1 << 20);
    assert_eq!(now(), (4 << 20, 5 << 20), "to take more is no progress");
    reply.set(2 << 20);
    reply.note_moved(7);
    assert_eq!(now(), (2 << 20, (7 << 20) + 7));
    drop(arguments);
    assert_eq!((account.used(), now()), (2 << 20, (2 << 20, (7 << 20) + 7)), "it has gone on when the work began");
}

#[test]
fn who_is_refused_is_told_whose_bytes_there_is_no_room_for() {
    let budget = Budget::new(64 << 20);
    let (one, other) = (Account::of(&budget, 8 << 20), Account::of(&budget, 8 << 20));
    let own = one.charge_anyway(20 << 20);
    let why = one.refusal(3 << 20);
    assert!(why.contains("read faster") && why.contains("20971520 bytes for this client"), "{why}");
    drop(own);
    let _others = other.charge_anyway(62 << 20);
    let why = one.refusal(3 << 20);
    assert!(why.contains("65011712 of 67108864 bytes for all its clients") && why.contains("max_memory"), "{why}");
    assert!(!why.contains("read faster"), "{why}");
}

#[test]
fn many_connections_together_keep_twice_the_budget_at_most() {
    let budget = Budget::new(64 << 20);
    let accounts: Vec<_> = (0..256).map(|_| Account::of(&budget, 1 << 20)).collect();
    let full = accounts[0].charge_anyway(64 << 20);
    let part = (64 << 20) / 256;
    let kept: Vec<_> = accounts[1..].iter().map(|one| one.charge(part).expect("its part")).collect();
    assert!(accounts[1..].iter().all(|one| one.charge(1).is_none() && one.room() == 0));
    assert!(budget.await_room());
    drop(Account::of(&budget, 1 << 20));
    assert!(budget.await_room(), "the others' parts have grown");
    let more: Vec<_> = (0..4096).map(|_| Account::of(&budget, 1 << 20)).collect();
    assert!(more.iter().all(|one| one.room() == SMALL_CALL), "a call that is not long");
    drop((full, kept));
    assert_eq!(more[0].room(), 16 << 20);
}

#[test]
fn mappings_are_counted_however_short_the_messages_are() {
    let budget = Budget::new(1 << 40);
    let accounts: Vec<_> = (0..5).map(|_| Account::of(&budget, 1)).collect();
    let of_one: Vec<_> = std::iter::from_fn(|| accounts[0].charge_mapped(1, 1)).collect();
    assert_eq!(of_one.len(), MOST_MAPPED / 4);
    let of_all = |one: &Arc<Account>| std::iter::from_fn(|| one.charge_mapped(1, 1)).collect::<Vec<_>>();
    let others: Vec<_> = accounts[1..4].iter().map(of_all).collect();
    let little = of_all(&accounts[4]);
    assert_eq!(little.len(), ALWAYS_MAPPED, "there is always a little");
    assert!(budget.await_room() && accounts[4].charge_mapped(1, 1).is_none());
    assert!(!budget.await_room(), "a refusal frees nothing, and wakes nobody");
    assert!(accounts[0].charge_mapped(1, 0).is_some(), "a message without mappings");
    drop((of_one, others, little));
    assert_eq!((budget.mapped.load(Ordering::Relaxed), budget.used()), (0, 0));
    assert!(budget.await_room(), "it was freed");
}

#[test]
fn unfinished_messages_are_told_from_those_that_somebody_works_on() {
    let budget = Budget::new(64 << 20);
    let (one, other) = (Account::of(&budget, 21 << 20), Account::of(&budget, 21 << 20));
    let mut charge = one.charge_anyway(22 << 20);
    assert!(!one.allows(0) && !one.is_full_of_unfinished(), "those go when their handlers are over");
    charge.set_unfinished(12 << 20);
    assert!(one.is_full_of_unfinished());
    let mut others = other.charge_anyway(10 << 20);
    others.set_unfinished(10 << 20);
    assert!(!other.is_full_of_unfinished(), "there is room for more");
    let rest = one.charge_anyway(40 << 20);
    assert!(!other.is_full_of_unfinished(), "others' handlers are at work");
    charge.set_unfinished(22 << 20);
    assert!(other.is_full_of_unfinished());
    drop((charge, others, rest));
    assert_eq!((budget.used(), budget.unfinished.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_shared_charge_takes_no_more_than_there_is() {
    let budget = Budget::new(64 << 20);
    let account = Account::of(&budget, 0);
    let charge = SharedCharge::new(&account);
    assert!(charge.add(10 << 20) && charge.add(6 << 20));
    assert!(!charge.add(1), "a quarter is taken");
    assert_eq!(budget.used(), 16 << 20);
    charge.clear();
    assert_eq!(budget.used(), 0);
    assert!(charge.add(16 << 20));
    drop(charge);
    assert_eq!((budget.used(), account.room()), (0, 16 << 20));
}

#[test]
fn an_account_has_what_it_needs_at_least() {
    let budget = Budget::new(64 << 20);
    assert!(Account::of(&budget, 60 << 20).charge(60 << 20).is_some());
}
