#!/usr/bin/env bash
# Judges what every Flux Kustomization below the given folder will apply: bash validate.sh clusters/
set -euo pipefail

failed=0
while read -r path; do
  echo "--- $path"
  kustomize build "$path" | spotgate check - || failed=1
done < <(grep -rl --include='*.yaml' 'apiVersion: kustomize.toolkit.fluxcd.io/' "$1" | xargs sed -n 's/^  path: *//p' | sort -u)
exit "$failed"
