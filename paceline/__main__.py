import sys

from paceline.core.files.helper_command import hide_current_folder

if __name__ == "__main__":
    hide_current_folder()
    from paceline.cli.main import main

    sys.exit(main())
