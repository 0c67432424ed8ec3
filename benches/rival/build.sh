#!/bin/sh
# Builds the library of Debian's Open vSwitch, and the rival that links it, in FOLDER.
#
#   benches/rival/build.sh FOLDER
#
# The source is the package of Debian, with the optimisation level of the package.
# Needs gcc, make, python3, and the network for the package.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
if [ ! -e openvswitch/lib/.libs/libopenvswitch.a ]; then
    apt-get download openvswitch-source
    dpkg -x openvswitch-source_*.deb package
    tar xzf package/usr/src/openvswitch/openvswitch.tar.gz
    cd openvswitch
    ./configure --disable-ssl --disable-libcapng CFLAGS=-O2
    printf 'include Makefile\nbuilt: $(BUILT_SOURCES)\n' | make -f - built
    make -j2 lib/libopenvswitch.la
    cd ..
fi
cd openvswitch
gcc -O2 -I. -Iinclude -Ilib -o ../classifier "$here/classifier.c" \
    lib/.libs/libopenvswitch.a lib/.libs/libopenvswitchavx512.a -latomic -lm -lpthread
