"""TMSN's own analysis of its log, as seed 000 prints it, character by character."""

from __future__ import annotations

from io import StringIO

import pandas as pd


# fmt: off
# ruff: noqa
def get_stats(log_path, num_machines):
    logs = []
    run_id = 0
    test_id = 0
    with open(log_path) as f:
        for line in f:
            if line.startswith("load_size"):
                run_id += 1
            if line.startswith("start new test"):
                test_id = int(line.split(", ")[1])
            if line.startswith("stress perf"):
                logs.append(str(run_id) + "," + str(test_id) + "," + line)
    df = pd.read_csv(StringIO(''.join(logs)), sep=",",
                     names=["run_id", "test_id", "log", "load", "addr", "total", "msg", "msg_echo", "hb", "hb_echo",
                            "msg_time", "hb_time", "avg_msg", "avg_hb"])

    num_load_sets = len(set(df.load))
    if df.iloc[-1].load == df.iloc[0].load:
        num_load_sets += 2
    msg = df.groupby(["run_id", "load", "test_id"]).sum()[["msg_time", "msg_echo"]]

    df = df[df["addr"] == "local"].drop(columns=["log", "addr"]).set_index(["run_id", "load", "test_id"])

    df["msg_time"] = msg["msg_time"]
    df["avg_msg"] = msg["msg_time"] / msg["msg_echo"]

    df = df.reset_index()
    df_mean = df.groupby(df.index % num_load_sets).mean()
    df_std = df.groupby(df.index % num_load_sets).std()

    df_mean["std_msg"] = df_std["avg_msg"]
    df_mean["std_hb"] = df_std["avg_hb"]
    df_mean = df_mean.drop(columns=["test_id", "msg_time", "hb_time", "run_id"])

    return df_mean
