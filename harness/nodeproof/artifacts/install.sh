#!/bin/sh
# install.sh [FOLDER]: install nodeproof from this bundle, without a network. FOLDER is the new virtual environment (.venv).
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
venv=${1:-.venv}
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodeproof

refuse() { printf 'nodeproof: %s (install.sh); %s\n' "$1" "$2" >&2; exit 2; }

needed=$(cat "$bundle/platform")
present=$("$python" -c 'import sys, sysconfig; print(sysconfig.get_platform(), "Python %d.%d" % sys.version_info[:2])') ||
    refuse "no $python" "set PYTHON"
[ "$present" = "$needed" ] || refuse "the bundle is for $needed, not for $present" "set PYTHON, or make a bundle on such a machine"

"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --no-index --find-links "$bundle/wheels" 'nodeproof[lab]'

# A part of the cache that exists stays; a new one appears complete.
while read -r part; do
    [ ! -e "$cache/$part" ] || continue
    mkdir -p "$(dirname "$cache/$part")"
    rm -rf "$cache/$part.new"
    cp -a "$bundle/cache/$part" "$cache/$part.new"
    mv -T "$cache/$part.new" "$cache/$part"
done <"$bundle/parts"
printf 'nodeproof: installed; next: %s/bin/nodeproof doctor\n' "$venv"
