"""The package oidc-provider-mock as a provider on a free port, which it prints, until its input ends."""

import json
import sys

import oidc_provider_mock

user = oidc_provider_mock.User(sub="s-7", claims={"preferred_username": "grace", "groups": ["leads"]})
with oidc_provider_mock.run_server_in_thread(user_claims=[user], require_nonce=True) as server:
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.read()
