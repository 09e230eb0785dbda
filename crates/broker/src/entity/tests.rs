use std::time::Duration;

use crate::entity::test_world::World;
use crate::settings::ReceiveSettings;

/// Each line is a command, and after `=>` what comes of it.
#[track_caller]
fn check(settings: ReceiveSettings, script: &str) {
    let mut world = World::new(settings);
    for line in script.lines().map(str::trim).filter(|it| !it.is_empty()) {
        let (command, expected) = line.split_once("=>").unwrap_or((line, ""));
        let found = world.run(command.trim());
        assert_eq!(found, expected.trim(), "{line}");
    }
}

fn plain() -> ReceiveSettings {
    ReceiveSettings::default()
}

fn with_sessions() -> ReceiveSettings {
    ReceiveSettings::with_sessions()
}

#[test]
fn messages_come_in_order_and_go_when_completed() {
    check(
        plain(),
        "send a1 b1 => 1 2
         send a2 => 3
         take messages 2 => a1:1 b1:1
         take messages 9 => a2:1
         take messages 9 =>
         complete b1 => ok
         complete b1 => lost
         complete a1 => ok
         segments => 1
         counts => 1 1 0 0 0 0
         complete a2 => ok
         segments => 0",
    );
}

#[test]
fn an_abandoned_message_comes_again_first_and_counts() {
    check(
        plain(),
        "send a1 a2 => 1 2
         take messages 1 => a1:1
         abandon a1 => ok
         take messages 2 => a1:2 a2:1
         release a2 => ok
         take messages 1 => a2:1",
    );
}

#[test]
fn a_lock_ends_unless_it_is_renewed() {
    check(
        plain(),
        "send a1 => 1
         take messages 1 => a1:1
         wait 59
         renew a1 => ok
         wait 59
         take messages 1 =>
         wait 1
         complete a1 => lost
         take messages 1 => a1:2
         renew a1 => ok",
    );
}

#[test]
fn a_message_that_fails_too_often_becomes_a_dead_letter() {
    check(
        ReceiveSettings { delivery_count_max: 2, ..plain() },
        "send a1 a2 => 1 2
         take messages 1 => a1:1
         abandon a1 => ok
         take messages 1 => a1:2
         wait 60
         take messages 9 => a2:1
         take dead 1 => a1:3MaxDeliveryCountExceeded
         abandon a1 => ok
         take dead 1 => a1:4MaxDeliveryCountExceeded
         dead a1 => ok
         counts => 1 1 0 0 1 0
         take dead 1 => a1:4MaxDeliveryCountExceeded
         complete a1 => ok
         counts => 1 1 0 0 0 0",
    );
}

#[test]
fn one_receiver_has_a_session_and_gets_its_messages_in_order() {
    check(
        with_sessions(),
        "send a1 b1 a2 => 1 2 3
         accept => a
         accept a => Taken
         accept => b
         accept => None
         take a 1 => a1:1
         take b 9 => b1:1
         take a 9 => a2:1
         abandon a1 => ok
         take a 9 => a1:2
         send a3 => 4
         accept => None
         take a 1 => a3:1
         complete a1 => ok
         close a => ok
         complete a2 => lost
         accept => a
         take a 9 => a2:1 a3:1
         counts => 3 3 0 0 0 2",
    );
}

#[test]
fn a_session_whose_lock_ends_is_available_again_from_its_first_message() {
    check(
        with_sessions(),
        "send a1 b1 a2 => 1 2 3
         accept => a
         take a 2 => a1:1 a2:1
         complete a1 => ok
         wait 59
         renew a => ok
         wait 59
         complete a1 => lost
         wait 1
         take a 1 => lost
         complete a2 => lost
         accept => b
         accept => a
         take a 9 => a2:2",
    );
}

#[test]
fn a_named_session_may_be_empty() {
    check(
        with_sessions(),
        "accept x => x
         take x 1 =>
         send x1 => 1
         take x 1 => x1:1
         close x => ok
         close x => lost
         accept => x",
    );
}

#[test]
fn deferred_messages_come_when_they_are_asked_for() {
    check(
        plain(),
        "send a1 a2 => 1 2
         take messages 1 => a1:1
         defer a1 => ok
         take messages 9 => a2:1
         deferred - a2 => no 2
         deferred - a1 => a1:1
         deferred - a1 => no 1
         abandon a1 => ok
         deferred - a1 => a1:2
         wait 60
         take messages 9 => a2:2
         deferred - a1 a1 => a1:3
         complete a1 => ok
         deferred - a1 => no 1",
    );
}

#[test]
fn deferred_messages_of_a_session_belong_to_it() {
    check(
        with_sessions(),
        "send a1 b1 => 1 2
         accept => a
         accept => b
         take a 1 => a1:1
         defer a1 => ok
         deferred b a1 => no 1
         deferred a a1 => a1:1
         close a => ok
         counts => 1 0 0 1 0 1
         accept a => a
         deferred a a1 => a1:1
         dead a1 => ok
         counts => 1 0 0 0 1 2
         take dead 1 => a1:1Bad",
    );
}

#[test]
fn scheduled_messages_come_at_their_time_and_in_the_order_of_it() {
    check(
        with_sessions(),
        "send a1@10 a2 a3@5 => 1 2 3
         accept => a
         take a 9 => a2:1
         peek messages => a1=scheduled a2 a3=scheduled
         wait 4
         send a4 => 4
         wait 6
         send a5 => 5
         take a 9 => a4:1 a3:1 a1:1 a5:1",
    );
}

#[test]
fn scheduled_messages_can_be_cancelled_until_their_time() {
    check(
        plain(),
        "send a1@10 a2@10 a3@20 => 1 2 3
         cancel a1 a4 => no 18446744073709551615
         cancel a1 => ok
         cancel a1 => no 1
         wait 10
         cancel a2 => no 2
         take messages 9 => a2:1
         cancel a3 => ok
         complete a2 => ok
         segments => 0",
    );
}

#[test]
fn expired_messages_go_away() {
    check(
        plain(),
        "send a1!5 a2 a3!100 => 1 2 3
         take messages 1 => a1:1
         wait 5
         counts => 3 1 0 0 0 0
         wait 55
         take messages 9 => a2:1 a3:1
         counts => 2 2 0 0 0 0
         wait 60
         counts => 1 0 0 0 0 0",
    );
}

#[test]
fn an_expired_message_goes_away_although_nobody_asks_for_it_after_its_lock_ended() {
    check(
        plain(),
        "send a1!5 => 1
         take messages 1 => a1:1
         wait 5
         counts => 1 1 0 0 0 0
         wait 60
         counts => 0 0 0 0 0 0
         segments => 0",
    );
}

#[test]
fn expired_messages_become_dead_letters_where_that_is_wished() {
    let settings = ReceiveSettings {
        dead_letter_on_expiration: true,
        default_time_to_live: Some(Duration::from_secs(10)),
        ..with_sessions()
    };
    check(
        settings,
        "send a1 a2!20 b1!5 => 1 2 3
         wait 5
         counts => 2 0 0 0 1 1
         wait 5
         counts => 0 0 0 0 3 0
         accept => None
         take dead 9 => a1:1TTLExpiredException a2:1TTLExpiredException b1:1TTLExpiredException",
    );
}

#[test]
fn dead_letters_are_sent_back_into_their_old_place_and_do_not_expire() {
    check(
        ReceiveSettings { dead_letter_on_expiration: true, ..with_sessions() },
        "send a1!5 a2 a3 => 1 2 3
         accept => a
         take a 9 => a1:1 a2:1 a3:1
         abandon a1 => ok
         dead a2 => ok
         close a => ok
         wait 6
         peek dead => a1 a2
         revive a3 => lost
         revive a1 => ok
         revive a2 => ok
         peek dead =>
         wait 100
         accept => a
         take a 9 => a1:1 a2:1 a3:1",
    );
}

#[test]
fn a_repeated_id_is_dropped_within_the_window() {
    check(
        plain(),
        "send a1 a1 a2 => 1 - 2
         send a1 => -
         take messages 9 => a1:1 a2:1
         complete a1 => ok
         complete a2 => ok
         wait 599
         send a1 => -
         wait 1
         send a1 a2 => 3 4",
    );
}
