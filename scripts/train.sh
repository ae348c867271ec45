#!/usr/bin/env bash
# Sets everything up, builds the program and trains the shipped digits classifier.
# Further arguments go to `kindling fit`: ./scripts/train.sh --seed 3 trainer.max_epochs=5
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

need_build_packages
find_libtorch
configure release
build release bin/kindling
exec "$kindling_root/build/release/bin/kindling" fit -c "$kindling_root/configs/digits.toml" "$@"
