# shellcheck shell=sh
# testbed/apt.sh - Debian packages without touching the host; to be sourced.
#
# apt works here with sources, lists and caches of its own, in the cache folder,
# and packages are unpacked, never installed.  The caller has `say` and `die`, and
# may set `architecture`.

default_mirror=http://deb.debian.org/debian
cache=${SCX_HETERO_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/scx_hetero}

# Reads the package index of SUITE; afterwards `private_apt` and
# `private_apt_cache` are apt-get and apt-cache on it alone.  Fails, having shown
# why, if the index cannot be read.
read_index() { # SUITE
	suite=$1
	architecture=${architecture:-amd64}
	apt=$cache/apt/$suite
	[ "$architecture" = amd64 ] || apt=$apt-$architecture
	command -v apt-get >/dev/null || die "no apt-get here: this comes from Debian."
	keyring=
	for k in /usr/share/keyrings/debian-archive-keyring.gpg \
		/usr/share/keyrings/debian-archive-keyring.pgp; do
		[ ! -f "$k" ] || keyring=$k
	done
	[ -n "$keyring" ] || die "Debian's signing keys are missing." \
		"As root: apt-get install debian-archive-keyring"

	mkdir -p "$apt/lists/partial" "$apt/archives/partial"
	exec 9>"$apt/lock"
	flock 9
	: >"$apt/status"
	cat >"$apt/apt.conf" <<END
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none";
Acquire::Retries "2";
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Sandbox::User "root";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
END
	# The host's own Debian mirror first: it is near, and surely reachable.
	mirrors=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' \
		2>/dev/null | sed -n 's|^\(http.*/debian\)/*$|\1|p' | sort -u | head -n 1)
	[ "$mirrors" = "$default_mirror" ] || mirrors="$mirrors $default_mirror"
	for mirror in $mirrors; do
		echo "deb [signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
		if private_apt -o APT::Update::Error-Mode=any update \
			>"$apt/update.log" 2>&1 </dev/null; then
			return
		fi
	done
	tail -n 3 "$apt/update.log" >&2
	return 1
}

private_apt() { apt-get -c "$apt/apt.conf" "$@"; }
private_apt_cache() { apt-cache -c "$apt/apt.conf" "$@"; }

# Downloads packages into the current folder, saying WHAT and how much.
download() { # WHAT PACKAGE...
	what=$1
	shift
	mb=$(private_apt_cache show --no-all-versions "$@" |
		awk '/^Size:/ { s += $2 } END { printf "%d", s / 1e6 + 1 }')
	free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
	[ "$free_mb" -ge 600 ] || die "$cache has only $free_mb MB free." \
		"Fetching $what needs 600 MB; make room or set SCX_HETERO_CACHE."
	say "fetching $what ($mb MB)"
	if ! private_apt download "$@" >"$apt/download.log" 2>&1 </dev/null; then
		tail -n 3 "$apt/download.log" >&2
		return 1
	fi
}
