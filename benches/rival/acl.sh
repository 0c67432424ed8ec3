#!/bin/sh
# Builds the program `acl`, which looks up packets by rte_acl of Debian's DPDK, in FOLDER.
#
#   benches/rival/acl.sh FOLDER
#
# The packages of DPDK are unpacked in FOLDER, and not installed.
# Needs gcc, and the network for the packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
libraries="acl eal kvargs mempool rcu ring telemetry"
if ! ls root/usr/lib/*/librte_acl.so > /dev/null 2>&1; then
    release=$(apt-cache depends libdpdk-dev | sed -n 's/.*librte-acl\([0-9.]*\)$/\1/p')
    apt-get download libdpdk-dev libbsd-dev libbsd0 libmd-dev $(for name in $libraries; do echo "librte-$name$release"; done)
    for package in ./*.deb; do
        dpkg -x "$package" root
    done
fi
folder=$(cd root/usr/lib/*/ && pwd)
gcc -O3 -march=corei7 -include rte_config.h -I root/usr/include -I root/usr/include/dpdk \
    -I "root/usr/include/$(basename "$folder")/dpdk" -o acl "$here/acl.c" \
    -L "$folder" -Wl,--disable-new-dtags "-Wl,-rpath,$folder" -lrte_acl -lrte_eal
