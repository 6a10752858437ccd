"""Which Java there is."""

import os
import re
import shutil
import subprocess


def java_version():
    """The major version of the Java that Spark would start, or 0."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java or not os.path.exists(java):
        return 0
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)
    return int(found[1]) if found else 0
