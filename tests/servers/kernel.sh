#!/bin/sh
# kernel.sh FOLDER: a Linux kernel of Debian's for a virtual machine, where /boot has none. It is
# only unpacked, and nothing of it is installed.
folder=$1

without() {
    echo "== no kernel for a virtual machine ($1): the tests that need it are skipped"
    exit 1
}

for image in /boot/vmlinuz-*; do
    [ -r "$image" ] && [ -d "/lib/modules/${image#/boot/vmlinuz-}" ] && exit 0
done
command -v apt-get >/dev/null && command -v dpkg >/dev/null || without "there is no apt-get"
# The package without a number names the newest one that has.
package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }')
[ -n "$package" ] || without "apt knows none; try: apt-get update"
echo "== fetching Debian's $package"
mkdir -p "$folder" && cd "$folder" || without "$folder cannot be made"
timeout 300 apt-get -qq download "$package" >/dev/null 2>&1 || without "'apt-get download $package' failed"
dpkg -x "$package"_*.deb . && rm -f "$package"_*.deb || without "$package cannot be unpacked"
