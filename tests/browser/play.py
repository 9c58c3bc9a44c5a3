"""Plays a scripted run into the database of the environment: `python -m tests.browser.play`. Prints the run's number first."""

import argparse
import os
import time

import django


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, required=True)
    options.add_argument("--pause", type=float, default=0.0)
    options.add_argument("--islands", type=int, default=3)
    options.add_argument("--finish", action="store_true")
    given = options.parse_args()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")
    django.setup()
    play(given)


def play(given: argparse.Namespace) -> None:
    from evolution_app import services
    from evolution_app.models import Candidate
    from gpu_runner.core.verdicts import RunState
    from tests.web import played_runs, samples

    owner = services.ensure_local_owner()
    task = samples.task(owner)
    run = services.start_run(task=task, by=owner, islands=given.islands, seed=1)
    print(run.pk, flush=True)
    time.sleep(2 * given.pause)  # the page opens meanwhile
    store = played_runs.play(run, pause_s=given.pause, count=given.count)
    if given.count >= 3:
        played_runs.call_model(store, 3)
        played_runs.think(store)
        third = Candidate.objects.get(run=run, number=3)
        services.nominate_entry(candidate=third, by=owner, content=samples.LESSON)
    if given.finish:
        store.set_state(RunState.FINISHED, "the budget of evaluations is spent")


if __name__ == "__main__":
    main()
