"""What a new process needs to go on where this one stopped: what the script calls, the states, and their files.

``session`` is what ``cockpit.session`` runs, ``live`` the probe's own part of it. Standard library only, like the
rest of the probe; the torch that it is handed loads and saves.
"""
