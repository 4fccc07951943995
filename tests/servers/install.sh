#!/bin/sh
# install.sh PROGRAM PACKAGE: a Debian package that some tests need and the others do not.
# Whatever goes wrong is said in one line, and the tests go on without it.
PATH="$PATH:/usr/sbin:/sbin"
program=$1 package=$2

without() {
    echo "== no $program ($1): the tests that need it are skipped"
    exit 1
}

command -v "$program" >/dev/null && exit 0
command -v apt-get >/dev/null || without "there is no apt-get to install it"
[ "$(id -u)" = 0 ] || without "only root can install it; try: sudo apt-get install $package"
echo "== installing Debian's $package"

# The packaged service must not start: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
fi

apt() {
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq \
        -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60 "$@" \
        >/dev/null 2>&1 </dev/null
}

apt update # an old list may still do
apt install -y --no-install-recommends "$package" || without "'apt-get install $package' failed"
command -v "$program" >/dev/null || without "$package does not hold it"
