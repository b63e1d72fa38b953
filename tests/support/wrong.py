"""What can go wrong, and what happens then: the rows of the README's table, each with the tests that show it.

Where a row is about loader workers it names faults of ``support.faults``, about the model's knobs those of
``support.kernel_faults``, else single tests. ``python tests/support/wrong.py`` prints the table; a test compares it.
"""

from __future__ import annotations

from dataclasses import dataclass

AS_BARE = "the script's own error, as without the cockpit"
HANGS = "hangs, as without the cockpit"
NOTHING = "–"
UNTOUCHED = "nothing happens to it"
BACK = "back to the settings before"


@dataclass(frozen=True)
class Row:
    """``ours``: while a change is under way or in force. ``own``: under the script's own settings.

    ``faults`` by name (by their words where nothing in the script is at fault); ``tests`` as
    ``tests/room/test_file.py::test_name``.
    """

    kind: str
    words: str
    ours: str
    own: str
    faults: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


WORKERS, MODEL, OURS, END = "loader workers", "the model's knobs", "the cockpit itself", "the end"
ANEW = "pauses and new processes"

ROWS = (
    Row(
        WORKERS,
        "one is killed (out of memory, say): in any phase of a step, in a message, with batches ready; or all are",
        f"{BACK}; its batches are loaded again",
        AS_BARE,
        faults=(
            "kill-forward", "kill-backward", "kill-optimizer", "kill-between", "kill-validating", "kill-queued",
            "message", "kill-pinning", "die-first", "kill-all",
        ),
    ),
    Row(
        WORKERS,
        "one is killed that only hands out its last batches, or waits between epochs",
        "loaded again or started again; the change stands",
        AS_BARE,
        faults=("kill-oldest", "kill-idle", "kill-all-idle"),
    ),
    Row(
        WORKERS,
        "one crashes, aborts, exits, or is told to end by somebody else",
        BACK,
        AS_BARE,
        faults=("signal-term", "signal-segv", "signal-bus", "signal-abort", "status", "sys-exit"),
    ),
    Row(
        WORKERS,
        "they hang: on a lock held at the fork, later, frozen; or a batch, or what the dataset raises, cannot be sent",
        f"{BACK} after a minute, or 30 times the longest batch; at once where something cannot be sent",
        HANGS,
        faults=("hang-lock", "hang-late", "hang-deaf", "stopped", "unsendable", "raise-local"),
    ),
    Row(
        WORKERS,
        "they do not end with their epoch, or have started processes of their own, such as a decoder each",
        "ended after 5 s, and what they started with them (not what has a session of its own); the change stands",
        "hangs, or leaves them, as without the cockpit",
        faults=("deaf-end",),
        tests=(
            "tests/probe/test_orphans.py::test_they_end_with_the_workers",
            "tests/probe/test_orphans.py::test_they_end_when_a_worker_was_killed_too",
            "tests/probe/test_orphans.py::test_those_of_the_scripts_own_workers_are_the_scripts",
            "tests/probe/test_orphans.py::test_what_has_let_go_of_its_worker_is_meant_to_stay",
        ),
    ),
    Row(
        WORKERS,
        "dataset, `collate_fn` or `worker_init_fn` fails in them, and only there; or they cannot be started: no more "
        "processes, or what spawn cannot pickle",
        BACK,
        AS_BARE,
        faults=(
            "raise", "raise-late", "raise-odd", "raise-late-odd", "raise-init", "raise-collate", "unpicklable", "fork",
            "fork-second",
        ),
    ),
    Row(
        WORKERS,
        "they would serve other data: the dataset holds an open file, a connection or an iterator; the loop changes it "
        "within an epoch; a stream is not shared out",
        "refused, naming what it is; what shows only later goes back at the next epoch",
        "goes on so, as without the cockpit",
        tests=(
            "tests/probe/test_held.py::test_it_is_found_wherever_it_stands",
            "tests/probe/test_held.py::test_workers_that_would_be_started_anew_are_not_once_the_training_itself_has_opened_it",
            "tests/probe/test_dataset_watch.py::test_what_the_loop_changes_within_an_epoch_is_known_at_its_end",
            "tests/probe/test_dataset_watch.py::test_a_stream_goes_back_at_the_next_boundary",
        ),
    ),
    Row(
        WORKERS,
        "`/dev/shm`, open files or memory run out; or batches of another size cannot be loaded, with the script's own "
        "workers or with none",
        f"said before, where it can be foreseen; else {BACK}",
        AS_BARE,
        faults=("descriptors", "descriptors-late", "shm", "memory"),
        tests=(
            "tests/probe/test_preflight.py::test_a_change_that_lands_at_once_is_told_of_first",
            "tests/probe/test_swap_faults.py::test_the_thread_that_pins_dies_quietly_and_all_it_had_is_fetched_again",
            "tests/probe/test_batch_faults.py::test_it_goes_back_and_nothing_is_lost",
            "tests/probe/test_batch_faults.py::test_at_the_scripts_size_again_a_worker_that_dies_is_torchs_to_tell_of",
        ),
    ),
    Row(
        WORKERS,
        "one of several ranks cannot take a change",
        "all ranks go back; the reason names the rank",
        NOTHING,
        tests=(
            "tests/e2e/test_launchers.py::test_where_one_rank_cannot_all_go_back",
            "tests/engine/test_ranks.py::test_all_have_it_or_none_has_it_in_every_order",
        ),
    ),
    Row(
        MODEL,
        "a forward fails under `autocast`, or does not compile",
        "that call runs the old way, random numbers and buffers put back; rolled back. Evaluations (no gradients) stay "
        "as the script has them",
        AS_BARE,
        faults=("assign", "assign-late", "scatter", "evaluating", "the C++ compiler does not work"),
        tests=(
            "tests/probe/test_kernels_autocast.py::test_a_failing_forward_runs_the_old_way_and_leaves_no_trace",
            "tests/probe/test_kernels_evaluation.py::test_what_is_caught_in_an_evaluation_is_as_the_script_has_it",
            "tests/probe/test_kernels_compile.py::test_a_failing_compilation_runs_the_old_way_and_leaves_no_trace",
        ),
    ),
    Row(
        MODEL,
        "a backward fails under it",
        f"{BACK}; one step's gradients count as 0",
        AS_BARE,
        faults=("backward",),
    ),
    Row(
        MODEL,
        "the loss becomes nan or all gradients 0, and they were not before",
        "back to the model and optimizer before the change, and how many updates that costs; said before where no "
        "snapshot fits",
        "goes on so, as without the cockpit",
        faults=("nan", "nan-skipped", "vanish"),
    ),
    Row(
        MODEL,
        "one loss is nan, or it was nan before",
        "the change stands",
        "goes on so, as without the cockpit",
        faults=("nan-once", "nan-own"),
    ),
    Row(
        MODEL,
        "torch compiles again and again, up to its limit, or nothing at all, and goes on without",
        f"{BACK}; the reason says which",
        "goes on so, as without the cockpit",
        faults=("storm", "torch compiles nothing without saying so"),
    ),
    Row(
        MODEL,
        "no compiler for `compile`, no instructions for bf16",
        "the row says so before; where each step then takes three times as long or longer, back to the settings before",
        NOTHING,
        tests=(
            "tests/probe/test_kernels_compile.py::test_no_compiler_is_told_before",
            "tests/probe/test_kernels_emulated.py::test_the_row_says_so_while_autocast_is_off",
            "tests/probe/test_kernels_slower.py::test_each_step_several_times_slower_goes_back_at_once",
        ),
    ),
    Row(
        MODEL,
        "a batch size under which the loop would miss samples, run past a table that it made, or batch norm fail",
        "refused with the reason; what the loop then misses all the same is counted, and the size goes back",
        NOTHING,
        tests=(
            "tests/probe/test_batch_knob.py::test_the_backstop_takes_it_back_and_tells_how_many_were_not_seen",
            "tests/probe/test_kernels_batches.py::test_a_last_batch_of_one_and_one_that_is_never_filled",
            "tests/probe/test_lengths.py::test_a_table_made_before_the_training_forbids_smaller_batches_and_no_others",
        ),
    ),
    Row(
        OURS,
        "the screen is killed, its terminal closed, its connection lost",
        "the change goes on; `cockpit attach` shows what it gave",
        UNTOUCHED,
        tests=(
            "tests/e2e/test_tmux.py::test_losing_the_screen_in_the_middle_of_a_change",
            "tests/e2e/test_tmux.py::test_closing_the_terminal_itself",
            "tests/tui/test_terminal.py::test_a_terminal_that_is_gone_ends_the_screen_and_burns_nothing",
        ),
    ),
    Row(
        OURS,
        "the engine is killed or stopped",
        "the change lands all the same; whoever asks next starts another engine, which tells of it",
        UNTOUCHED,
        tests=(
            "tests/e2e/test_own_faults.py::test_each_of_our_processes_fails_in_the_middle_of_a_change",
            "tests/engine/test_run_life.py::test_new_engine_takes_over_from_a_killed_one",
            "tests/engine/test_run_life.py::test_end_that_no_engine_saw_is_still_known",
        ),
    ),
    Row(
        OURS,
        "its disk is full, its socket in /tmp cleaned away",
        "the change lands and is told of; written down again, bound again, within seconds",
        UNTOUCHED,
        tests=(
            "tests/e2e/test_own_faults.py::test_each_of_our_processes_fails_in_the_middle_of_a_change",
            "tests/engine/test_run_life.py::test_socket_that_vanished_is_bound_again",
        ),
    ),
    Row(
        OURS,
        "the keeper is killed",
        "the change lands; only the exit status is lost, and `LOST` says so",
        "the same",
        tests=(
            "tests/e2e/test_own_faults.py::test_each_of_our_processes_fails_in_the_middle_of_a_change",
            "tests/engine/test_run_life.py::test_keeper_that_is_killed_costs_only_the_status",
        ),
    ),
    Row(
        OURS,
        "the run's folder is deleted",
        "the training goes on to its end, of which nobody will know",
        "the same",
        tests=("tests/e2e/test_own_faults.py::test_the_runs_folder_is_deleted_in_the_middle_of_a_change",),
    ),
    Row(
        OURS,
        "a part of the probe fails, or torch lacks what it leans on",
        "that part is off, and its knobs say why; the training goes on",
        UNTOUCHED,
        tests=(
            "tests/probe/test_guard.py::test_a_training_whose_hook_fails_in_the_middle_goes_on_bare",
            "tests/probe/test_guard.py::test_a_torch_that_lacks_a_loaders_part_turns_that_off_with_the_reason",
        ),
    ),
    Row(
        OURS,
        "the machine's clock is set, or it sleeps",
        "no figure rests on it",
        "no grace is cut short by it",
        tests=(
            "tests/engine/test_phases.py::test_a_clock_that_is_set_neither_cuts_a_grace_short_nor_draws_it_out",
        ),
    ),
    Row(
        ANEW,
        "the new environment makes Python, torch or an import fail; or a library cannot be preloaded; the script, or a "
        "module of its own, is half edited or gone; what it trains was rebuilt since `cockpit.session`",
        "the old process trains on; refused with the last line of the import's output, the file and line, or what was "
        "rebuilt",
        "no hand-off is written that could not be restored; the one of before stays",
        tests=(
            "tests/probe/test_begins_again.py::test_what_has_become_of_the_script",
            "tests/probe/test_handoff_structure.py::test_what_was_rebuilt_is_named_where_torch_would_not_load_it",
            "tests/e2e/test_begins_once.py::test_a_script_that_is_half_edited_is_left_alone",
            "tests/e2e/test_begins_once.py::test_what_was_rebuilt_meanwhile_is_not_handed_over",
            "tests/engine/test_restarts.py::test_a_process_that_cannot_begin_leaves_the_old_one_alone",
            "tests/probe/test_taking_over.py::test_imports_that_fail_end_it_before_its_turn",
            "tests/engine/test_restart_preview.py::test_a_library_that_would_be_passed_over_is_told_of_first",
        ),
    ),
    Row(
        ANEW,
        "the new process fails before its first step",
        "the environment of before goes on from the same hand-off, with or without an engine; rolled back. If that "
        "fails, too (it is the same script), that is told, it is tried again, as after a crash, and then offered",
        NOTHING,
        tests=(
            "tests/e2e/test_begins_once.py::test_a_beginning_that_fails_twice_ends_the_run_and_says_so",
            "tests/engine/test_restart_plan.py::test_nothing_is_said_to_go_on_before_it_does",
            "tests/engine/test_restarts.py::"
            "test_a_process_that_fails_before_its_first_step_gives_way_to_the_environment_of_before",
            "tests/probe/test_taking_over.py::test_back_to_what_was",
            "tests/engine/test_crashes.py::test_handed_over_to_processes_that_all_fail_it_is_tried_again_and_offered",
        ),
    ),
    Row(
        ANEW,
        "the old process does not end after it has handed over: its script swallows that (a bare `except:`), or hangs; "
        "or a shell is killed, and the training that it ran goes on",
        "ended again at its next save, model, loader or step, and told; its own endings are carried out. Told to end "
        "after 30 s (`--grace`, if more), ended 10 s later; nothing begins beside one that goes on, its pid is named: "
        "two never train",
        NOTHING,
        tests=(
            "tests/engine/test_trainers.py::test_a_person_is_told_who_trains_by_an_engine_that_has_heard_nobody",
            "tests/engine/test_trainers.py::test_a_try_waits_for_whoever_trains_and_not_for_ever",
            "tests/probe/test_taking_over.py::test_takes_over_only_once_the_old_one_is_gone",
            "tests/probe/test_taking_over.py::test_an_old_one_that_cannot_end_is_ended",
            "tests/probe/test_handoff_away.py::test_a_script_that_swallows_its_end_is_ended_at_whatever_it_does_next",
            "tests/probe/test_handoff_away.py::test_what_belongs_to_an_ending_is_carried_out",
            "tests/engine/test_restart_plan.py::test_a_process_that_does_not_end_once_it_has_handed_over_is_told_of",
        ),
    ),
    Row(
        ANEW,
        "the disk is full, or a state cannot be pickled, when a hand-off is due",
        "the training goes on, the reason is told, the hand-off of before stays",
        "the same",
        tests=(
            "tests/probe/test_handoff_files.py::test_without_room_nothing_is_written",
            "tests/probe/test_handoff_files.py::test_a_disk_that_is_full_for_real",
            "tests/probe/test_handoff_life.py::test_what_cannot_be_written_costs_the_training_nothing",
        ),
    ),
    Row(
        ANEW,
        "it is killed in the middle of a hand-off; or one is damaged, or of another run, script or set of things",
        "passed over with its reason, and the newest whole one is gone on from",
        "the same",
        tests=(
            "tests/probe/test_handoff_killed.py::test_killed_in_the_middle",
            "tests/probe/test_handoff_files.py::test_a_damaged_one_is_passed_over_with_its_reason",
            "tests/probe/test_handoff_files.py::test_a_foreign_one_is_passed_over_with_its_reason",
        ),
    ),
    Row(
        ANEW,
        "no hand-off can be restored",
        "the new process ends with status 75 and a sentence: never epoch 0 unnoticed",
        NOTHING,
        tests=("tests/probe/test_handoff_life.py::test_a_life_goes_on_or_says_why_not",),
    ),
    Row(
        ANEW,
        "an exception, a kill or a lack of memory ends the training",
        "with `--on-crash restart` it goes on from the newest hand-off or checkpoint; the ledger says what was lost",
        "its status is passed on, and `cockpit restart` offered, with what that would lose",
        tests=(
            "tests/engine/test_crashes.py::test_goes_on_from_the_newest_hand_off_and_tells_what_was_lost",
            "tests/engine/test_crashes.py::test_a_person_restarts_what_has_ended",
            "tests/engine/test_crashes.py::test_the_process_of_before_that_runs_again_is_tried_again_too",
            "tests/e2e/test_after_a_crash.py::test_it_goes_on_to_the_bit",
        ),
    ),
    Row(
        ANEW,
        "it crashes under a setting that has just changed; or again, under the same settings, without coming further",
        "that change is taken back for the next try; given up, with its own status",
        "its status is passed on",
        tests=(
            "tests/engine/test_crashes.py::test_settings_that_had_not_settled_are_taken_back",
            "tests/engine/test_crashes.py::test_given_up_where_the_same_settings_come_no_further",
        ),
    ),
    Row(
        ANEW,
        "the newest checkpoint was cut short, is being written or nothing to resume from; or the script can go on from "
        "nothing",
        "the one before is used, and the reason told; it is not begun anew, and what that would cost is told",
        "the same",
        tests=(
            "tests/engine/test_checkpoints.py::test_one_that_was_cut_short_gives_way_to_the_one_before",
            "tests/engine/test_by_checkpoint.py::"
            "test_stopped_for_a_file_that_nothing_resumes_from_it_goes_on_from_the_one_before",
            "tests/engine/test_crashes.py::test_a_script_that_cannot_go_on_is_told_the_cost_and_is_not_begun_anew",
        ),
    ),
    Row(
        ANEW,
        "the engine is lost while a try is waited for",
        "the run ends with its status, and says why; `cockpit restart` goes on",
        NOTHING,
        tests=("tests/engine/test_crashes.py::test_an_engine_lost_while_it_waits_gives_up_and_says_so",),
    ),
    Row(
        ANEW,
        "the engine is gone while a training is paused; a paused one is stopped, or sent a signal that it handles",
        "it goes on by itself after 10 s, and the next engine tells why; at once for a stop or a signal",
        "the same",
        tests=(
            "tests/probe/test_pause.py::test_without_an_engine_it_goes_on_by_itself_and_says_so_to_the_next",
            "tests/probe/test_pause.py::test_a_handler_that_only_notes_the_signal_is_heard_at_once",
            "tests/engine/test_pausing.py::test_a_stop_lets_it_go_on_first_so_that_its_handler_is_heard",
        ),
    ),
    Row(
        END,
        "you stop a training that saves on SIGTERM",
        "it alone is told, once, and has 30 s (`--grace`); what it leaves behind has the rest of them; then all that "
        "bears the run's mark ends, and nothing else: what was started without it is named",
        "the same",
        tests=(
            "tests/engine/test_stopping.py::test_soft_stop_lets_a_long_save_finish",
            "tests/engine/test_stopping.py::test_soft_stop_signals_the_training_alone",
            "tests/engine/test_stopping.py::test_after_the_grace_everything_with_the_mark_goes_and_nothing_else",
        ),
    ),
    Row(
        END,
        "the training dies, and leaves workers or helpers",
        "its loader workers are ended; others are named and left alone; a change not kept yet is *ended*: with "
        "which status, how many steps after it came into force",
        "the same, without the change",
        tests=(
            "tests/history/test_ends.py::test_how_it_ended_is_said_with_the_change_that_it_ended_under",
            "tests/engine/test_stopping.py::test_workers_of_a_killed_training_are_reaped",
            "tests/engine/test_stopping.py::test_normal_end_reaps_workers_and_names_others",
        ),
    ),
)  # fmt: skip


def table() -> str:
    """The rows as markdown."""
    lines = ["| what goes wrong | with a change under way or in force | under the script's own settings |"]
    lines.append("|---|---|---|")
    kind = None
    for row in ROWS:
        if row.kind != kind:
            kind = row.kind
            lines.append(f"| **{kind}** | | |")
        lines.append(f"| {row.words} | {row.ours} | {row.own} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
