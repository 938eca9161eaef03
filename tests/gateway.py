"""What a session of the tests spares itself in talking to its JVM, and its JVM in every job.

Nothing here changes what a call does: names of classes are looked up once, and of Hadoop's defaults only those are kept that
say anything about files of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from py4j.clientserver import JavaClient
from py4j.java_gateway import GatewayClient
from pyspark import RDD, SparkContext
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer

# py4j asks for every part of `jvm.org.apache.hadoop.fs.Path`, and for every method of a class, each time anew. What is no class
# is looked for in all of Spark's 280 jars.
_LOOKUPS = ("r\nu\n", "r\nm\n")
_NAMES = ("yp", "yc", "ym")
"""What is found is a package, a class or a method; the value of a static field is none of these, and is not remembered."""
_IMPORT = "j\ni\n"


def remember_names() -> None:
    """Lets this process's gateways remember what names of the JVM stand for.

    At the class, below what a test may put there to count the calls.
    """
    for kind in {GatewayClient, JavaClient}:
        if "send_command" in vars(kind):
            kind.send_command = _remembering(vars(kind)["send_command"])


def _remembering(ask: Callable[..., Any]) -> Callable[..., Any]:
    found: dict[tuple[object, str], str] = {}

    def send_command(self: object, command: str, *args: Any, **kwargs: Any) -> Any:
        if not command.startswith(_LOOKUPS):
            if command.startswith(_IMPORT):
                found.clear()
            return ask(self, command, *args, **kwargs)
        answer = found.get((self, command))
        if answer is None:
            answer = ask(self, command, *args, **kwargs)
            if answer.startswith(_NAMES):
                found[self, command] = answer
        return answer

    return send_command


# Every scan and every write sends Hadoop's settings to its tasks. Most are defaults of clusters that are not here.
_OF_CLUSTERS = re.compile(
    r"(yarn|ipc|ha|rpc|ftp|nfs|adl|mapreduce\.(?!fileoutputcommitter|output|input|map\.output)|fs\.(s3a|gs|azure|adl|ftp|obs)|"
    r"hadoop\.(http|registry|ssl|zk|prometheus|jetty|kerberos|security\.(group|crypto|kms)))\."
)


def forget_clusters(context: SparkContext) -> None:
    """Takes the defaults of clusters and of other storages out of a session's Hadoop settings."""
    context._jvm.org.apache.hadoop.mapred.JobConf()  # has the last of them read
    conf = context._jsc.hadoopConfiguration()
    for name in list(conf.getValByRegex(_OF_CLUSTERS.pattern).keySet()):
        if _OF_CLUSTERS.match(name):
            conf.unset(name)


# The rows of a list are pickled in batches of a fixed size. Spark reads batches of any size; only because these go by another name
# it sends them through a process of Python in every task of every scan, which hands them on as they are.
_ANY_BATCHES = AutoBatchedSerializer(CPickleSerializer())


def hand_rows_over() -> None:
    """Lets the JVM read the rows of lists that become DataFrames, without Python's processes in between; the plans are the same."""
    parallelize: Callable[..., RDD[Any]] = SparkContext.parallelize

    def handed_over(self: SparkContext, *args: Any, **kwargs: Any) -> RDD[Any]:
        rows = parallelize(self, *args, **kwargs)
        if type(rows) is RDD:
            rows._jrdd_deserializer = _ANY_BATCHES
        return rows

    SparkContext.parallelize = handed_over
