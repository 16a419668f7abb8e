#!/bin/sh
# Take out of an installed environment what an agent never reads: symbols for debuggers, tests and headers of
# libraries, and pyarrow's parts for networks and other engines. slim.sh /opt/tacit. docs/how-to/offline-install.md
# says how much it saves. What is left works as before; pip may no longer upgrade in it: make a new one instead.
set -eu
packages="$(echo "$1"/lib/python3*/site-packages)"
[ -d "$packages/pyarrow" ] || { echo "slim.sh: $1 holds no environment with Tacit's libraries" >&2; exit 1; }
rm -rf "$packages/pyarrow/include" "$packages/pyarrow/src" "$packages/pyarrow/tests"
rm -f "$packages"/pyarrow/libarrow_flight* "$packages"/pyarrow/libarrow_s3* \
    "$packages"/pyarrow/_flight.*.so "$packages"/pyarrow/_s3fs.*.so
for library in numpy scipy; do
    find "$packages/$library" -type d -name tests -prune -exec rm -rf {} +
done
rm -rf "$packages"/pip "$packages"/pip-*.dist-info "$packages"/setuptools "$packages"/setuptools-*.dist-info \
    "$packages"/pkg_resources "$packages"/_distutils_hack "$packages"/distutils-precedence.pth "$1"/bin/pip*
find "$packages/opendp" "$packages/pyarrow" -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
