//! The contract list: each case is named once and runs on every backend.
//!
//! The PostgreSQL cases run where `LONGHAUL_TEST_POSTGRES` names a server (`rigs/postgres.sh start DIR` prints
//! one) and are shown as ignored elsewhere.

mod births;
mod lives;
mod reads;
mod writes;

macro_rules! contract {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        mod memory {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$topic::$case(crate::support::Rig::memory()).await;
                }
            )+)+
        }

        mod sqlite {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$topic::$case(crate::support::Rig::sqlite()).await;
                }
            )+)+
        }

        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[cfg_attr(not(postgres_at_hand), ignore = "set LONGHAUL_TEST_POSTGRES (rigs/postgres.sh)")]
                async fn $case() {
                    super::$topic::$case(crate::support::Rig::postgres().await).await;
                }
            )+)+
        }
    };
}

contract! {
    births:
        a_task_is_read_back_as_it_was_written,
        an_equal_key_finds_the_first_task,
        an_owner_and_its_namesake_elsewhere_do_not_meet,
        names_are_free_or_taken,
        the_count_of_open_tasks_is_exact_under_concurrent_births,
        a_birth_outside_its_slot_fails;
    writes:
        every_shape_of_a_task_is_read_back,
        concurrent_increments_all_count,
        concurrent_changes_of_one_task_all_count,
        versions_rise_by_one,
        a_refused_step_writes_nothing,
        each_step_leaves_one_audit_record_in_order,
        a_step_is_written_once,
        a_body_is_written_once,
        a_stored_body_is_kept,
        an_outcome_never_changes,
        what_the_next_leg_goes_on_from_may_be_replaced,
        a_write_outside_the_scope_fails_whole,
        a_judge_that_panics_harms_nobody,
        records_are_set_and_deleted;
    reads:
        a_list_is_read_page_by_page,
        a_list_is_narrowed,
        a_foreign_owner_sees_nothing,
        due_tasks_are_found_earliest_first,
        claimable_tasks_are_found_tool_by_tool,
        held_tasks_are_found,
        what_is_watched_shows_each_change,
        the_store_counts_what_it_holds;
    lives:
        a_purge_takes_what_is_over_and_keeps_the_rest,
        a_purged_name_is_free_again,
        expired_records_are_gone,
        a_live_runner_is_not_dead,
        a_dead_runner_is_found,
        a_runner_is_forgotten_once_it_holds_nothing;
}
