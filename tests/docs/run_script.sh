#!/usr/bin/env bash
# A page's commands as a reader would type them: run_script.sh FOLDER_OF_KINDLING CONFIGS SCRIPT
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$2" "$folder/configs"
cd "$folder"
PATH=$1:$PATH bash "$3"
