"""Homes that outlive a pod: folders of this machine, each a volume that one user's claim may have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

STORAGE = """
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.pvc_name_template = "claim-{username}"
c.KubeSpawner.storage_class = ""
c.KubeSpawner.storage_capacity = "10Mi"
c.KubeSpawner.volumes = {"home": {"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}}}
c.KubeSpawner.volume_mounts = {"home": {"name": "home", "mountPath": "/home/jovyan"}}
c.KubeSpawner.working_dir = "/home/jovyan"
"""


def home_of(user: str, folder: Path, namespace: str) -> dict[str, Any]:
    """A folder of this machine that only this user's claim may have."""
    folder.mkdir()
    os.chmod(folder, 0o777)  # the kubelet gives such a folder to nobody, and servers are user 1000
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"home-of-{user}-{namespace}"},
        "spec": {
            "capacity": {"storage": "10Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": f"claim-{user}"},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
