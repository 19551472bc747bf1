//! capture-uprobe
