"""``python -m trinitymerge`` is the command ``trinitymerge``."""

from trinitymerge.commands import main

if __name__ == "__main__":
    main()
