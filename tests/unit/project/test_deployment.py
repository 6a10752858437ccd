"""What deploys pylog, in conf/: each file is one of its kind, and each command in it is one of `pylog`."""

import json
import re
import shlex

import click
import pytest

from pyspark_log.cli.main import main
from tests.paths import ROOT

yaml = pytest.importorskip("yaml")

DOCKER, KUBERNETES, SYSTEMD = ROOT / "conf/docker", ROOT / "conf/kubernetes", ROOT / "conf/systemd"
MANIFESTS = [path.name for path in sorted(KUBERNETES.glob("*.yaml")) if path.name != "kustomization.yaml"]
PORTS = {"kafka": 9092, "metrics": 9308, "page": 9309}


def documents(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def instruction(name):
    """The last instruction of the Dockerfile with that name, its list."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    return json.loads(re.findall(rf"^{name} (\[.*\])$", text, re.MULTILINE)[-1])


def pods():
    """The specifications of pods, by the name of what makes them."""
    found = {}
    for name in MANIFESTS:
        for document in documents(KUBERNETES / name):
            spec = document["spec"].get("jobTemplate", document).get("spec", {})
            if "template" in spec:
                found[document["metadata"]["name"]] = spec["template"]["spec"]
    return found


def commands():
    yield "Dockerfile", instruction("CMD")
    for name, pod in pods().items():
        [container] = pod["containers"]
        yield name, container["args"]
    for path in sorted(SYSTEMD.glob("*.service")):
        [line] = re.findall(r"^ExecStart=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        yield path.name, shlex.split(line)[1:]


@pytest.mark.parametrize(
    ("where", "arguments"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_commands_are_of_pylog(where, arguments):
    name, *options = arguments
    command = main.get_command(click.Context(main), name)
    values, rest, _ = command.make_parser(click.Context(command)).parse_args(options)
    assert rest == []
    if name == "serve":
        ports = [values[f"{kind}listen"].rpartition(":")[2] for kind in ("", "metrics_", "ui_")]
        assert ports == [str(port) for port in PORTS.values()]
        # A server at all addresses refuses to start without one of these.
        assert values["listen"].startswith("127.0.0.1:") or values["allow_anonymous"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_have_the_fields_of_kubernetes(name):
    validator = pytest.importorskip("kubernetes_validate")
    for document in documents(KUBERNETES / name):
        validator.validate(document, validator.latest_version(), strict=True)


def test_the_parts_of_the_server_fit():
    made, listed = {}, documents(KUBERNETES / "kustomization.yaml")[0]
    for name in listed["resources"]:
        made |= {document["kind"]: document for document in documents(KUBERNETES / name)}
    pod = made["Deployment"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    for selector in (
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= pod["metadata"]["labels"].items()
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == PORTS
    assert {port["targetPort"]: port["port"] for port in made["Service"]["spec"]["ports"]} == PORTS
    claims = [volume["persistentVolumeClaim"] for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == [{"claimName": made["PersistentVolumeClaim"]["metadata"]["name"]}]
    # Two servers of one store: the second would be refused until the first has gone.
    assert (made["Deployment"]["spec"]["replicas"], made["Deployment"]["spec"]["strategy"]) == (1, {"type": "Recreate"})
    [image] = listed["images"]
    assert container["image"] == image["name"]


def test_containers_may_little():
    for pod in pods().values():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert f"USER {pod['securityContext']['runAsUser']}\n" in (DOCKER / "Dockerfile").read_text(encoding="utf-8")
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_services_of_compose_fit():
    [compose] = documents(DOCKER / "compose.yaml")
    server = compose["services"]["server"]
    assert (DOCKER / server["build"]["context"] / server["build"]["dockerfile"]).samefile(DOCKER / "Dockerfile")
    # No client logs in, so that no other machine may reach it.
    assert all(port.startswith("127.0.0.1:") for service in compose["services"].values() for port in service["ports"])
    [volume, _] = compose["services"]["prometheus"]["volumes"]
    [scraped] = documents(DOCKER / volume.partition(":")[0])[0]["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"server:{PORTS['metrics']}"]}]
    used = {entry.partition(":")[0] for service in compose["services"].values() for entry in service["volumes"]}
    assert {name for name in used if not name.startswith(".")} == set(compose["volumes"])
