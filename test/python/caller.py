"""A caller in Python, made from proto/ alone. Takes the address of the gRPC port; prints what it was answered, a step a line.

Its stubs, with Debian's python3-grpcio, python3-protobuf, protobuf-compiler, protobuf-compiler-grpc and libprotobuf-dev:

    plugin=--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin
    protoc $plugin -I proto --python_out=. --grpc_out=. proto/ipledger/v1/*.proto proto/google/rpc/*.proto
    protoc $plugin -I proto/grpc/health/v1 --python_out=. --grpc_out=. proto/grpc/health/v1/health.proto

Health has a root of its own because Python's library is a package `grpc`, too. Debian's python3-grpc-tools cannot read these files: its
protoc is older than `optional` in proto3.
"""

import json
import sys

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from health_pb2 import HealthCheckRequest
from health_pb2_grpc import HealthStub
from ipledger.v1 import lease_pb2 as lease
from ipledger.v1 import network_pb2 as network
from ipledger.v1 import pool_pb2 as pool
from ipledger.v1.lease_pb2_grpc import LeaseServiceStub
from ipledger.v1.network_pb2_grpc import NetworkServiceStub
from ipledger.v1.pool_pb2_grpc import PoolServiceStub
from ipledger.v1.types_pb2 import Owner

WITHIN = 30


def show(step, answer):
    print(json.dumps({step: answer if isinstance(answer, dict) else MessageToDict(answer)}))


def refusal(call, request):
    """Code, message and details of a call that must fail; grpcio-status reads them the same way."""
    try:
        call(request, timeout=WITHIN)
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        said = {"code": error.code().name, "message": error.details()}
        for one in Status.FromString(details).details:
            for kind in (ErrorInfo, RetryInfo):
                message = kind()
                if one.Unpack(message):
                    said[kind.DESCRIPTOR.name] = MessageToDict(message)
        return said
    raise SystemExit(f"was accepted: {request}")


with grpc.insecure_channel(sys.argv[1]) as channel:
    leases = LeaseServiceStub(channel)

    show("health", HealthStub(channel).Check(HealthCheckRequest(service="ipledger.v1.LeaseService"), timeout=WITHIN))
    show(
        "network",
        NetworkServiceStub(channel).CreateNetwork(network.CreateNetworkRequest(name="python"), timeout=WITHIN),
    )
    show(
        "pool",
        PoolServiceStub(channel).CreatePool(
            pool.CreatePoolRequest(network="python", name="web", cidr="10.0.0.0/30", gateway="10.0.0.1"), timeout=WITHIN
        ),
    )

    reserve = lease.ReserveRequest(
        network="python",
        owner=Owner(kind="pod", name="default/größe", incarnation="a", labels={"app": "web"}),
        claims=[lease.Claim(pool="web")],
        confirm_within=Duration(seconds=60),
        request_id="a/eth0",
    )
    reserved = leases.Reserve(reserve, timeout=WITHIN)
    show("reserved", reserved)
    show("repeated", leases.Reserve(reserve, timeout=WITHIN))
    lease_id = reserved.leases[0].lease_id
    show("confirmed", leases.Confirm(lease.ConfirmRequest(lease_id=lease_id), timeout=WITHIN))
    show("got", leases.GetLease(lease.GetLeaseRequest(lease_id=lease_id), timeout=WITHIN))

    other = lease.ReserveRequest(network="python", owner=Owner(kind="pod", name="other"), claims=[lease.Claim(pool="web")])
    show("refused", refusal(leases.Reserve, other))

    watch = leases.WatchLeases(lease.WatchLeasesRequest(network="python", after=0))
    told = []
    while len(told) < 2:
        told += next(watch).changes
    show("released", leases.Release(lease.ReleaseRequest(lease_id=lease_id), timeout=WITHIN))
    while len(told) < 3:
        told += next(watch).changes
    show("watched", {"changes": [MessageToDict(change) for change in told]})
    watch.cancel()
    try:
        next(watch)
    except grpc.RpcError as error:
        show("cancelled", {"code": error.code().name})
    show("cooling", refusal(leases.Reserve, other))
