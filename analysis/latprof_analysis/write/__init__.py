"""Writers: files and folders that a user names, where nobody else can swap them."""
