"""A judge and players for the pool's tests: the candidate's source says what they shall do."""

import json
import os
import socket
import time

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.errors import ChildCrashed

FOREVER_S = 600


def evaluation(device, **changes):
    content = {
        "verdict": "correct",
        "kind": None,
        "state": "finished",
        "fidelity": "modelled",
        "verified_at": "probe",
        "device": device,
        "track": "own_kernels",
        "precision": "reference",
        "environment": {"judge": os.getpid()},
    }
    return {"evaluation": content | changes}


def judge(channel, fds):
    """Answers "open" by the task's source, "evaluate" by the candidate's, a JSON list of steps."""
    opened, _ = channel.receive(FOREVER_S)
    refusal = task_refusal(opened["task"]["source"])
    if refusal:
        channel.send(refusal)
        channel.receive(FOREVER_S)
    probe_source = "PROBE" if "probe" in opened["task"]["source"] else None
    report = {"inputs": [], "outputs": [], "probe": {"N": 8}, "probe_source": probe_source}
    channel.send({"report": report})
    while True:
        question, _ = channel.receive(FOREVER_S)
        if question["do"] == "lint":
            channel.send({"report": report})
        else:
            evaluate(channel, opened, question["source"])


def task_refusal(source):
    if source == "invalid":
        return {"invalid_task": {"reason": "there is no Model", "line": 3}}
    if source == "judge fails":
        return {"failure": "out of luck"}
    if source == "device lost":
        return {"device_lost": "fell off the bus"}
    return None


def evaluate(channel, opened, source):
    seen, peers = {}, {}
    for step, value in json.loads(source):
        if step == "stage":
            channel.send({"stage": value})
        elif step == "need":
            seen[step], peers[value] = need(channel, value)
        elif step == "ask":
            peers[value["player"]].send(value)
            seen[step], _ = peers[value["player"]].receive(20)
        elif step == "tell":
            peers[value].send({"die": True})
        elif step == "eof":
            seen[step] = is_closed(peers[value])
        elif step == "drop":
            channel.send({"drop": value})
            seen[step], _ = channel.receive(20)
        elif step == "quiet":
            channel.send({"need": "quiet"})
            seen[step], _ = channel.receive(20)
        elif step == "sleep":
            time.sleep(value)
        elif step == "exit":
            print("the judge gives up")
            os._exit(value)
        elif step == "raw":
            channel.send(value)
    channel.send(evaluation(opened["device_name"], profile={"seen": seen, "options": opened}))


def need(channel, value):
    channel.send({"need": "player", "nursery": "plain", "id": value, "role": "candidate"})
    answer, (fd,) = channel.receive(20)
    return answer, Channel(socket.socket(fileno=fd))


def is_closed(channel):
    try:
        channel.receive(10)
    except ChildCrashed:
        return True
    return False


def player(channel, fds):
    while True:
        message, _ = channel.receive(FOREVER_S)
        if message.get("die"):
            print("the player dies")
            os._exit(9)
        channel.send({"pid": os.getpid(), "capabilities": capabilities()})


def capabilities():
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith("CapEff"))


def double(request):
    return {"n": request["n"] * 2}


def double_later(request):
    time.sleep(1)
    return double(request)


def fail(request):
    raise ValueError("no such thing")


def return_a_number(request):
    return 7


def return_what_is_no_json(request):
    return {"set": {1, 2}}


def return_too_much(request):
    return {"text": "x" * (9 << 20)}


def die(request):
    print("last words", flush=True)
    os._exit(3)


def never_return(request):
    time.sleep(FOREVER_S)
