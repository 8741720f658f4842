"""Ansible's way into a machine of the tests: the namespaces of its first process, whose id is the host's address."""

import subprocess

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: room
short_description: run in the namespaces of a process
description: Runs commands in the namespaces of the process whose id is the host's address.
"""


class Connection(ConnectionBase):
    transport = "room"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def _run(self, *command, **how):
        enter = ["nsenter", "--all", "--root", "--wd", "--target", str(self._play_context.remote_addr)]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        return subprocess.run([*enter, *clean, *command], stderr=subprocess.PIPE, **how)

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = self._run("/bin/sh", "-c", cmd, input=in_data or b"", stdout=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path, out_path):
        with open(in_path, "rb") as file:
            self._copy("cat >\"$0\"", out_path, stdin=file)

    def fetch_file(self, in_path, out_path):
        with open(out_path, "wb") as file:
            self._copy("cat \"$0\"", in_path, stdout=file)

    def _copy(self, script, path, **how):
        done = self._run("/bin/sh", "-c", script, path, **how)
        if done.returncode:
            raise AnsibleError(f"copy {path}: {done.stderr}")

    def close(self):
        self._connected = False
