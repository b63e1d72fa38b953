"""The loader-swap mechanism: other settings for a live, unmodified DataLoader, each index exactly once, in order.

Called by the probe's hooks, in the thread of the script, and by nobody else. It must never draw from a generator
that the script can see, never touch a loader whose settings are the script's own, and never leave the training
without a source of batches: what fails comes back to the settings before, with a notice that says why.

How the hooks use it::

    mechanism = install(torch)                    # once; mechanism.off: reason why nothing can be swapped, or None
    control = LoaderControl(mechanism, loader)    # one per DataLoader, at its first __iter__; holds it weakly:
                                                  # keep it in a WeakKeyDictionary keyed by the loader

    group = control.plan({"num_workers": 2})      # asked knobs (Values, "script" too) -> the whole coupled Group;
                                                  # raises Refused (.reason, one sentence). now=True: for a swap in
                                                  # the middle of an epoch. base=Group: on top of what (default:
                                                  # control.wanted, what was last planned for or is in force)
    control.open(original_iter, group)            # in the patched DataLoader.__iter__; group None or control.script:
                                                  # the script's own iterator, untouched. Returns the iterator to
                                                  # hand to the script.
    control.swap(iterator, group) -> Swap | None  # at entry of the patched iterator __next__ (before the original
                                                  # is called). None: not yet (the last swap still drains, or the
                                                  # epoch has no index left): ask again at the next __next__; the
                                                  # boundary is open() with the same group.
    control.take_notices() -> list[Notice]        # after every open, swap and __next__ of a managed iterator: a
                                                  # Notice (failed, in_force, reason) says that a change was rolled
                                                  # back; go on asking open() for notice.in_force.

    control.script                                # Group the script made it with (read anew at each open)
    control.in_force                              # Group last really put in force
    control.refusals()                            # {knob: Refusal(can, can_now, reason, note)}, for KnobReport
    control.in_force_now(iterator) -> Group       # from live facts: workers alive, pin thread alive
    control.workers(iterator) -> tuple of pids    # those that still drain included
    control.queue(iterator) -> (have, capacity) | None   # None without workers, or where no qsize exists
    take_stall_ns(iterator) -> int                # ns of swap work (builds, shut-downs) inside its __next__ calls
                                                  # since last asked: these are "start", not "wait"; 0 for others

Per delivered batch a managed iterator carries ``iterator._cockpit_samples``: int, or None where unknown (iterable
datasets, batch_size None) and while batches of torch's own, untouched workers drain (the hooks' own count by
``_next_index`` goes on there). Our own sources override ``_next_index``, so a class-level patch sees only torch's.
``is_source(iterator)``: True for our inner sources (never handed to a script): hooks must leave them alone.
"""
