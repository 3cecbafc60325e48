"""A program for RMR in Python, as one writes it with ricxappframe. Arguments: its port."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

rmr: Any = importlib.import_module("ricxappframe.rmr.rmr")  # it has no types, and may not be there


def main(port: str) -> None:
    """Sends a message, receives the reply, sends that back, and calls."""
    context = rmr.rmr_init(port.encode(), rmr.RMR_MAX_RCV_BYTES, rmr.RMRFL_MTCALL)
    end = time.monotonic() + 30
    while rmr.rmr_ready(context) == 0:
        assert time.monotonic() < end
        time.sleep(0.01)
    buffer: Any = rmr.rmr_alloc_msg(context, 200, payload=b"hello", gen_transaction_id=True, mtype=1000, meid=b"cell-7")
    sent = rmr.message_summary(buffer)
    assert sent["meid"] == b"cell-7"
    buffer = rmr.rmr_send_msg(context, buffer)
    assert rmr.message_summary(buffer)["message state"] == rmr.RMR_OK
    buffer = rmr.rmr_torcv_msg(context, buffer, 30_000)
    got = rmr.message_summary(buffer)
    assert got["message state"] == rmr.RMR_OK
    assert (got["message type"], got["payload"], got["meid"]) == (1001, b"HELLO", b"cell-7")
    assert got["transaction id"] == sent["transaction id"]
    rmr.set_payload_and_length(b"thanks", buffer)
    buffer.contents.mtype = 1002
    buffer = rmr.rmr_rts_msg(context, buffer)
    assert rmr.message_summary(buffer)["message state"] == rmr.RMR_OK
    buffer = rmr.rmr_torcv_msg(context, buffer, 0)
    assert rmr.message_summary(buffer)["message status"] == "RMR_ERR_TIMEOUT"
    asked: Any = rmr.rmr_alloc_msg(context, 200, payload=b"asked", gen_transaction_id=True, mtype=1000)
    answer = rmr.rmr_call(context, asked)
    assert rmr.get_payload(answer) == b"ASKED"
    rmr.rmr_free_msg(answer)
    rmr.rmr_free_msg(buffer)
    rmr.rmr_close(context)
    print("all is well")


main(*sys.argv[1:])
