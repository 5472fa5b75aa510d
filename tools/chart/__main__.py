"""Generate: versions, values.schema.json, README.md, the CRD's template and the alerts of the chart; then deploy/."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from chart import alerts, crd, manifests, readme, schema, values, version
from servingpool import __version__
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "servingpool-operator"
HERE = Path(__file__).parent


def main() -> int:
    """Write everything; each file is a function of the version, values.yaml, the templates, the catalogue and crds/."""
    metadata = CHART / "Chart.yaml"
    metadata.write_text(version.updated(metadata.read_text(), __version__))
    read = values.read(CHART / "values.yaml")
    definitions = yaml.safe_load((HERE / "definitions.yaml").read_text())
    text = json.dumps(schema.schema(read, definitions), indent=2, ensure_ascii=False)
    (CHART / "values.schema.json").write_text(f"{text}\n")
    document = CHART / "README.md"
    document.write_text(readme.updated(document.read_text(), read, definitions["backend"]))
    sources = sorted((ROOT / "crds").glob("*.yaml"))
    (CHART / "templates" / "crd.yaml").write_text(crd.template(*(source.read_text() for source in sources)))
    (CHART / "files" / "alerts.yaml").write_text(alerts.rules())
    try:
        helm = ensure_binaries("helm")["helm"]
        rendered = manifests.render(helm, CHART, HERE / "deploy-values.yaml")
    except (BuildError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for name, manifest in rendered.items():
        (ROOT / "deploy" / name).write_text(manifest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
