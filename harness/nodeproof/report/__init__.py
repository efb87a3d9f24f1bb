"""Allure, timeline pictures, the closing table; reads run folders only."""
