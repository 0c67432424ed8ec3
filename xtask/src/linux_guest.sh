#!/bin/busybox sh
# The guest of the suite `linux_guest`: repeats rounds of traffic until QEMU ends.
# With a role in the command line of the kernel, it is a guest of the experiment `ports-vms`.
/bin/busybox --install /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
MODULES
ip link set eth0 up
case $(sed -n 's/.*shunt_role=\([a-z]*\).*/\1/p' /proc/cmdline) in
  send)
    ip addr add 10.66.3.3/24 dev eth0
    while :; do
      nc 10.66.3.4 9002 < /dev/zero
      sleep 1
    done
    ;;
  receive)
    ip addr add 10.66.3.2/24 dev eth0
    # At the end of its input, nc would close the connection.
    mkfifo /open
    sleep 1000000 > /open &
    while :; do nc -l -p 9002 < /open > /dev/null; done
    ;;
esac
ip addr add 10.66.3.2/24 dev eth0
echo "GUEST features $(cat /sys/bus/virtio/devices/virtio0/features)"
round=0
while :; do
  if ping -c 1 -W 1 10.66.3.1 > /dev/null; then
    download=$(sleep 5 | nc 10.66.3.1 9001 | md5sum | cut -c 1-32)
    dd if=/dev/zero bs=64k count=128 2> /dev/null | nc 10.66.3.1 9002
    round=$((round + 1))
    echo "GUEST round $round download $download"
  fi
done
