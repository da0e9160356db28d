"""A trainable of a user's own: closed-form scores, and a note of the machine that computed them."""

import socket
from dataclasses import replace

from trainables.spec import Report, TrainResult, TrainSpec
from trainables.synthetic import closed_form


def train(spec: TrainSpec, report: Report) -> TrainResult:
    return replace(closed_form(spec, report), notes=(f"ran on {socket.gethostname()}",))
